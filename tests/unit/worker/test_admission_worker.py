"""Runs that wait for their turn, and a store that fails while they are let in."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import outlast
from outlast.errors import StoreFault, TryAgain
from outlast.model.run_contents import Send
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app

RUNS = 5


class Failing(MemoryStore):
    """A store that does not admit one run for the first `times`."""

    error: Exception
    times = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.asked = Counter[str]()
        self.under_way = 0

    async def send(self, sends: Sequence[Send], **options: Any) -> Any:
        if not options.get("keeps"):
            return await super().send(sends, **options)
        [send] = sends
        self.asked[send.run_id] += 1
        if send.run_id == "r0" and self.asked["r0"] <= self.times:
            raise self.error
        self.under_way += 1
        await asyncio.sleep(0)  # the one that fails does so before the others are done
        self.under_way -= 1
        return await super().send(sends, **options)


@outlast.workflow
async def small(number: int) -> int:
    return number


@pytest.mark.proves("I24")
@pytest.mark.parametrize(
    ("error", "times", "asked"),
    [(TryAgain("away"), 2, 3), (StoreFault("broken"), 1, 2), (TryAgain("away for long"), 6, 7)],
    ids=["soon", "broken", "later"],
)
async def test_one_run_that_is_not_admitted_keeps_no_other_out(
    error: Exception, times: int, asked: int
) -> None:
    """The others begin, each told once; it is tried again at once where that may help, and else when
    its ticket comes again."""
    clock = VirtualClock()
    store = Failing(clock=clock)
    store.error, store.times = error, times
    async with app(small, store=store, clock=clock, queues=["line"], lease=30) as virtual:
        runs = [
            await virtual.start(small(number), id=f"r{number}", queue="line", here=False)
            for number in range(RUNS)
        ]
        for number, run in enumerate(runs[1:], 1):
            assert await run.result() == number
        assert store.under_way == 0
        assert await runs[0].result() == 0
    assert store.asked == {"r0": asked, **{f"r{number}": 1 for number in range(1, RUNS)}}
