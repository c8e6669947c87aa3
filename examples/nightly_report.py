"""A report by the clock, on a clock that leaps: a week of nights in a moment.

    python examples/nightly_report.py

The clocks of Berlin go back in the night of 25 October 2026, and half past two comes twice; the
report is made once. Then the worker is away for three days, and the last report is made up.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import outlast
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock

DAY = 86_400.0


@outlast.step
async def count_orders(region: str) -> int:
    """Ask the shop."""
    return len(region) * 10


@outlast.workflow
async def report(region: str) -> str:
    """What is made every night."""
    return f"{await count_orders(region)} orders in {region}"


nightly = outlast.Schedule(
    "nightly", report(region="eu"), cron="30 2 * * *", timezone="Europe/Berlin"
)


async def main() -> None:
    """Three nights, an absence, another night."""
    clock = VirtualClock(start=datetime(2026, 10, 23, 12, tzinfo=UTC))
    store = MemoryStore(clock=clock)
    async with outlast.App(store, schedules=[nightly]) as app:
        await clock.sleep(3 * DAY)
        await tell("three nights", app)
    await clock.sleep(3 * DAY)
    async with outlast.App(store, schedules=[nightly]) as app:
        await clock.sleep(DAY)
        await tell("after three days away", app)
        run = await app.client.schedules.trigger("nightly", by="ada")
        print("now:", await run.result())


async def tell(when: str, app: outlast.App) -> None:
    """Which reports there are."""
    runs = sorted([run.id async for run in app.client.find(attributes={"schedule": "nightly"})])
    state = await app.client.schedules.get("nightly")
    print(f"{when}: {', '.join(runs)} ({state.missed} missed)")


if __name__ == "__main__":
    asyncio.run(main())
