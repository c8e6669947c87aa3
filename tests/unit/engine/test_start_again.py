"""A start whose answer was lost: whichever process has the run now goes on with it."""

from __future__ import annotations

from typing import Any

import pytest

import outlast
from outlast.errors import UnknownOutcome
from outlast.model.commit import Outcome
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app

LEASE = 30.0
begun: list[str] = []


@outlast.step
async def act() -> str:
    begun.append("act")
    return "done"


@outlast.workflow
async def order() -> str:
    return await act()


class Parted(MemoryStore):
    """The answer to the first commit is lost for `seconds`; another process claims what it can then."""

    seconds = 0.0
    was_lost = False

    async def commit(self, commits: Any, **options: Any) -> list[Outcome]:
        outcomes = await super().commit(commits, **options)
        if not self.was_lost:
            self.was_lost = True
            await self.clock.sleep(self.seconds)
            await super().claim_runs("other", 3600)
            raise UnknownOutcome("the answer was lost")
        return outcomes


@pytest.mark.proves("I5")
async def test_a_claim_of_another_worker_is_not_taken_for_its_own() -> None:
    """The answer to the second try has the present token, which is the other worker's."""
    begun.clear()
    clock = VirtualClock()
    store = Parted(clock=clock)
    store.seconds = LEASE + 1
    async with app(order, store=store, clock=clock, lease=LEASE) as client:
        run = await client.start(order(), id="o")
        await clock.sleep(10 * LEASE)
        assert begun == []
        assert (await store.get(run.id)).owner == "other"


@pytest.mark.proves("I5")
async def test_its_own_claim_is_kept() -> None:
    """An answer that comes soon is as good as the first."""
    begun.clear()
    clock = VirtualClock()
    store = Parted(clock=clock)
    store.seconds = LEASE / 10
    async with app(order, store=store, clock=clock, lease=LEASE) as client:
        run = await client.start(order(), id="o")
        assert await run.result() == "done"
        assert clock.monotonic() < LEASE
    assert begun == ["act"]
