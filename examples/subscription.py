"""A year of a subscription, day by day as it is written, in a fraction of a second.

Each month is a life of the run of its own: `continue_as_new` begins the next one with an empty
history, so the run may go on for ever. A declined card is tried again each day. The clock of
`outlast.testing` leaps to the next moment at which something happens; with `outlast.App` in place
of `testing.app` the same code takes the year.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from datetime import date, timedelta

import outlast
from outlast import testing
from outlast.errors import SignalTimeout, StepFailed

DAY = 24 * 60 * 60


class Declined(Exception):
    pass


DAILY_FOR_A_WEEK = outlast.Retry(attempts=7, delay=DAY, max_delay=DAY, jitter=0)


@outlast.step(retry=DAILY_FOR_A_WEEK)
async def charge(customer: str, month: int, due: date) -> str:
    attempt = outlast.step_info().attempt
    if month == 3 and attempt < 3:
        print(f"   {day(due, attempt)}  month {month:2}  the card of {customer} is declined")
        raise Declined("insufficient funds")
    late = ", late" if attempt > 1 else ""
    print(f"   {day(due, attempt)}  month {month:2}  {customer} has paid{late}")
    return f"receipt {month}"


@outlast.workflow
async def subscription(customer: str, month: int = 1) -> str:
    try:
        await charge(customer, month, outlast.now().date())
    except StepFailed:
        return f"{customer} did not pay month {month}"
    try:
        reason = await outlast.wait_for_signal("cancel", str, timeout=timedelta(days=30))
    except SignalTimeout:
        outlast.continue_as_new(subscription(customer, month + 1))
    return f"{customer} has left in month {month}: {reason}"


def day(due: date, attempt: int) -> date:
    return due + timedelta(days=attempt - 1)


async def main(store: str) -> None:
    begun = time.monotonic()
    async with testing.app(subscription, store=store) as app:
        print("Ada subscribes:")
        run = await app.start(subscription("Ada"), id="subscription-of-ada")
        await app.clock.sleep(350 * DAY)
        await run.signal("cancel", "I have read everything")
        print(f"In the end: {await run.result()}.")
        events = len(await app.get(run.id).history())
    print(f"The last life of the run has {events} events.")
    print(f"350 days took {time.monotonic() - begun:.1f} seconds.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if sys.argv[1:] else f"sqlite:///{folder}/club.db"))
