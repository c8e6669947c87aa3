"""Storms of faults: what the clients saw and what the store holds keep every promise; a sick store
is found out by the same evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest
from msgspec.structs import replace

from outlast.model import Commit, Committed, Outcome
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.checker import check
from outlast.testkit.wrapped_store import WrappedStore
from tests.unit.testkit.faults.storm import Storm
from tests.unit.testkit.stateful.stores import memory_store, sqlite_store

Make = Callable[[ManualClock], AbstractContextManager[Store]]


async def violations(store: Store, clock: ManualClock, seed: int) -> list[str]:
    """The promises that a storm shows to be broken."""
    return [str(one) for one in check(await Storm(store, clock, seed).evidence())]


@pytest.mark.proves(
    "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I11", "I12", "I13", "I16", "I18", "I25"
)
@pytest.mark.parametrize(
    ("make", "seed"),
    [(memory_store, seed) for seed in range(40)] + [(sqlite_store, seed) for seed in range(15)],
)
async def test_a_storm_breaks_no_promise(make: Make, seed: int) -> None:
    """Racing starters, zombies, lost and doubled answers: the checker finds nothing."""
    clock = ManualClock()
    with make(clock) as store:
        async with store:
            assert await violations(store, clock, seed) == []


async def test_a_storm_is_one() -> None:
    """It reaches what it is meant to reach: fences, conflicts, unknown outcomes, retries, ends."""
    clock = ManualClock()
    evidence = await Storm(MemoryStore(clock=clock), clock, 1).evidence()
    results = {type(op.result).__name__ for op in evidence.ops}
    assert {"Committed", "Fenced", "RunExists", "UnknownOutcome", "Receipt", "Claim"} <= results
    assert any(isinstance(op.result, Committed) and op.result.again for op in evidence.ops)
    assert any(run.run.status.terminal for run in evidence.dumps[-1].runs.values())
    assert len(evidence.ops) > 150


# -- the control: the same storm on stores that are ill --------------------------------------------


class Unfenced(WrappedStore):
    """Takes whatever claim there is for the writer's."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        cured = []
        for commit in commits:
            run = await self.inner.find_one(commit.run_id)
            token = run.token if run is not None and run.token else None
            known = 0 if run is None else run.sequence
            expected = None if commit.expected is None else known
            cured.append(replace(commit, token=token, expected=expected))
        return await self.inner.commit(cured, **options)


class Forgetful(WrappedStore):
    """Says yes to every fifth commit without doing it."""

    count = 0

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        self.count += 1
        run = await self.inner.find_one(commits[0].run_id)
        if self.count % 5 or run is None or commits[0].create is not None:
            return await self.inner.commit(commits, **options)
        sequence = run.sequence + len(commits[0].events)
        return [
            Committed(run_id=run.id, uid=run.uid, sequence=sequence, revision=1, token=run.token)
        ]


class Torn(WrappedStore):
    """Writes the events of a commit and forgets the rest."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        torn = [replace(one, entries=(), timers=(), consumes=()) for one in commits]
        return await self.inner.commit(torn, **options)


class Reopening(WrappedStore):
    """Writes to a run that has ended, by beginning it anew with its old history."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        outcomes = await self.inner.commit(commits, **options)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed) and commit.change is not None and commit.events:
                again = replace(commit.events[-1], id=f"{commit.id}-again")
                await self.inner.commit([Commit(run_id=commit.run_id, force=True, events=(again,))])
        return outcomes


class Doubling(WrappedStore):
    """Repeats a commit under another id when it is asked twice."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        outcomes = await self.inner.commit(commits, **options)
        for commit, outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, Committed) and commit.events and commit.token is not None:
                twin = tuple(replace(event, id=f"{event.id}-twin") for event in commit.events)
                await self.inner.commit(
                    [Commit(run_id=commit.run_id, token=commit.token, events=twin)]
                )
        return outcomes


class Lossy(WrappedStore):
    """Receipts for signals that never reach the inbox: the next commit consumes them along."""

    async def commit(self, commits: Sequence[Commit], **options: Any) -> list[Outcome]:
        greedy = []
        for commit in commits:
            waiting = await self.inner.inbox(commit.run_id)
            greedy.append(replace(commit, consumes=tuple(item.number for item in waiting)))
        return await self.inner.commit(greedy, **options)


class Haunted(WrappedStore):
    """Deletes nothing and says that it did."""

    async def delete(self, run_id: str, **options: Any) -> bool:
        return await self.inner.exists(run_id)


SICK: dict[type[WrappedStore], set[str]] = {
    Unfenced: {"I5"},
    Forgetful: {"I3"},
    Torn: {"I12"},
    Doubling: {"I4", "I7"},
    Reopening: {"I4"},
    Lossy: {"I16"},
    Haunted: {"I25"},
}


@pytest.mark.parametrize("sick", SICK)
async def test_a_sick_store_is_found_out(sick: Callable[[Store], Store]) -> None:
    """Each illness shows within a few storms, under the right number."""
    found: set[str] = set()
    for seed in range(10):
        clock = ManualClock()
        broken = await violations(sick(MemoryStore(clock=clock)), clock, seed)
        found |= {violation.partition(" ")[0] for violation in broken}
    assert SICK[sick] <= found  # type: ignore[index]
