"""A worker tells several outcomes at once, and one that is lost takes no other along."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import outlast
from outlast.errors import Fenced, TryAgain
from outlast.model import Claim
from outlast.model.commit import Refusal
from outlast.model.run_contents import Receipt, Send
from outlast.stores.memory import MemoryStore

STEPS = 12


class Slow(MemoryStore):
    """A store that counts what comes in one call, and answers the first call when all is done."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.all_done = asyncio.Event()
        self.loses_answers = False
        self.steals = False
        self.stolen: Claim | None = None

    async def send(
        self, sends: Sequence[Send], *, finishes: Sequence[Claim] = (), **options: Any
    ) -> list[Receipt | Refusal]:
        self.batches.append(len(finishes))
        if len(self.batches) == 1:
            await self.all_done.wait()
        if self.steals and len(finishes) > 1:
            self.steals = False
            await self._steal(finishes[0])
        try:
            receipts = await super().send(sends, finishes=finishes, **options)
        except Fenced:
            if len(finishes) == 1 and self.stolen is not None:
                await self.queue().nack(self.stolen)  # the thief has no use for it
            raise
        if self.loses_answers and len(finishes) > 1:
            raise TryAgain("the answer was lost on its way")
        return receipts

    async def _steal(self, claim: Claim) -> None:
        await self.release([claim])
        [stolen] = await self.queue().take_many(
            [claim.queue or ""], owner="thief", visibility=60, limit=100
        )
        self.stolen = stolen.claim


done: list[int] = []
store: Slow


@outlast.step(queue="sums")
async def add(number: int) -> int:
    done.append(number)
    if len(done) == STEPS:
        store.all_done.set()
    return number + 1


@outlast.workflow
async def sums() -> int:
    return sum(await asyncio.gather(*[add(number) for number in range(STEPS)]))


RIGHT = sum(range(1, STEPS + 1))


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    global store
    store = Slow()
    done.clear()


async def play() -> int:
    """All steps are done before the first answer comes; the rest is told together."""
    async with outlast.App(store, workflows=[sums], steps=[add]) as app:
        run = await app.start(sums())
        return await run.result(timeout=60)


@pytest.mark.proves("S-15", "S-16")
async def test_what_is_ready_is_told_together() -> None:
    """While one call is on its way the next ones gather."""
    assert await play() == RIGHT
    assert sorted(done) == list(range(STEPS))
    assert sum(store.batches) == STEPS
    assert len(store.batches) <= 3


@pytest.mark.proves("S-16", "I13")
async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    """One by one: what had arrived is known, and nothing is done twice."""
    store.loses_answers = True
    assert await play() == RIGHT
    assert sorted(done) == list(range(STEPS))


@pytest.mark.proves("S-15", "S-17", "I6")
async def test_a_task_that_was_lost_takes_no_other_along() -> None:
    """The others of its call are told all the same; that one is done by who gets it next."""
    store.steals = True
    assert await play() == RIGHT
    assert store.stolen is not None
    assert set(done) == set(range(STEPS))
    assert len(done) == STEPS + 1
