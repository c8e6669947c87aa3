"""Ten-step workflows of ours that are killed half way, in a process of their own:

    python -m bench._recovering begin|resume PLACE LEDGER COUNT LEASE

`begin` starts COUNT of them and lives until it is killed, `resume` opens the same store and ends when
all are done. PLACE is where the store is. Each step writes a line to LEDGER when its body begins.
"""

from __future__ import annotations

import asyncio
import os
import sys

import outlast
from bench._stores import store_at
from bench.peers._clock import STEPS, TAKES

ledger = -1


@outlast.step
async def increase(number: int) -> int:
    """Say that it has begun, and take a while."""
    info = outlast.step_info()
    os.write(ledger, f"{info.run_id} {number}\n".encode())
    await asyncio.sleep(TAKES)
    return number + 1


@outlast.workflow
async def ten_steps() -> int:
    """Ten steps in a row."""
    number = 0
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def main(how: str, place: str, count: int, lease: float) -> None:
    """Begin, or see that all come to their end."""
    async with (
        store_at(place) as store,
        outlast.App(store, workflows=[ten_steps], lease=lease) as app,
    ):
        ids = [f"wf-{number}" for number in range(count)]
        if how == "begin":
            await asyncio.gather(*(app.start(ten_steps(), id=id) for id in ids))
        results = await asyncio.gather(*(app.get(id).result() for id in ids))
        if results != [STEPS] * count:
            raise AssertionError("a wrong result")


if __name__ == "__main__":
    ledger = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[4]), float(sys.argv[5])))
