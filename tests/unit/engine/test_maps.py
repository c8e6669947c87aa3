"""Maps: how far they run ahead of what is recorded, and what becomes of those nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

import outlast
from outlast.engine.operations.map import AHEAD
from outlast.model import Status
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testkit.wrapped_store import WrappedStore

T = TypeVar("T")
ran: list[int] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


class SlowStore(WrappedStore):
    """A store that takes a minute for a commit, and remembers how much was done before each."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.ran: list[int] = []

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if name == "commit":
            await self.clock.sleep(60)
            self.ran.append(len(ran))
        return await call()


@outlast.step
async def count(number: int) -> int:
    ran.append(number)
    await takes(1)
    return number


@outlast.workflow
async def counts() -> int:
    return sum(await outlast.map(count, range(200), concurrency=5))


@pytest.mark.proves("I9", "I12", "I22")
async def test_a_map_runs_ahead_of_its_record_by_so_much_and_no_more() -> None:
    """While a commit is on its way, only those items begin that the last one has announced."""
    clock = VirtualClock()
    store = SlowStore(MemoryStore(clock=clock))
    async with app(counts, store=store, clock=clock, lease=3600) as testing:
        run = await testing.start(counts())
        assert await run.result() == sum(range(200))
    # The first commit starts the run; with each one after that, what it announced may begin.
    ahead = 5 * AHEAD
    assert store.ran[0] == 0
    for commits, done in enumerate(store.ran[1:], 1):
        assert done <= commits * ahead
    assert sorted(ran) == list(range(200))


@pytest.mark.proves("I24")
async def test_a_map_that_nobody_waits_for_is_stopped() -> None:
    """Its items are given up with it, and the run can rest."""

    @outlast.step
    async def endless(number: int) -> int:
        ran.append(number)
        await takes(10**6)
        return number

    @outlast.workflow
    async def loses_patience() -> str:
        try:
            async with asyncio.timeout(10):
                await outlast.map(endless, range(100), concurrency=2)
        except TimeoutError:
            await outlast.sleep(hours=1)
        return "enough"

    async with app(loses_patience) as testing:
        run = await testing.start(loses_patience(), id="it")
        await testing.clock.sleep(11)
        record = await testing.get("it").status()
        assert (record.status, record.wait_kind, record.owner) == (Status.WAITING, "timer", None)
        assert await run.result() == "enough"
    assert ran == [0, 1]


@pytest.mark.proves("I19", "I28")
async def test_results_that_are_large_come_back_all_the_same() -> None:
    """Beyond a limit they are kept in facts; a replay finds them in order."""

    @outlast.step
    def large(number: int) -> str:
        return f"{number:06}" * 500

    @outlast.workflow
    async def collects() -> bool:
        results = await outlast.map(large, range(200), concurrency=50)
        await outlast.sleep(hours=1)
        return results == [f"{number:06}" * 500 for number in range(200)]

    async with app(collects) as testing:
        assert await (await testing.start(collects())).result() is True
