"""Concurrency: many callers at once. Nothing is lost, nothing is doubled, one wins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

import pytest
from msgspec import Raw

from outlast.errors import Conflict, DuplicateEvent, RunExists
from outlast.model import Change, Commit, Committed, Run
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    commit_patiently,
    event,
    events,
    patiently,
    take,
)

T = TypeVar("T")
MANY = 20


async def all_at_once(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Make calls concurrently and give their answers in order."""
    return list(await asyncio.gather(*calls))


class Concurrency(StoreContract):
    """Tasks of one loop."""

    @pytest.mark.proves("K-12", "M-03", "C-02", "I1", "I3")
    async def test_appends_to_one_run_are_serialised(self, store: Store) -> None:
        """Appends without an expectation all succeed; the numbers have no gap and no repetition."""
        await begin(store, "r")
        own = [events("r", 2) for _ in range(MANY)]
        ends = await all_at_once(patiently(store.append, "r", e) for e in own)
        assert sorted(ends) == [2 * n for n in range(1, MANY + 1)]
        history = await store.history("r")
        assert [one.sequence for one in history] == list(range(1, 2 * MANY + 1))
        # The two events of one append stand side by side.
        ids = [one.id for one in history]
        assert all(ids.index(b.id) == ids.index(a.id) + 1 for a, b in own)

    @pytest.mark.proves("K-12", "I27")
    async def test_appends_to_many_runs_do_not_meet(self, store: Store) -> None:
        """Different runs are written at the same time, each with its own numbers."""
        ids = [f"r{n}" for n in range(MANY)]
        for _ in range(3):
            await all_at_once(patiently(store.append, id, events(id, 2)) for id in ids)
        for id in ids:
            assert [one.sequence for one in await store.history(id)] == [1, 2, 3, 4, 5, 6]

    @pytest.mark.proves("K-08", "K-12", "C-02", "I3", "I4")
    async def test_of_writers_with_one_expectation_one_wins(self, store: Store) -> None:
        """All others get a conflict with what there is now, and have left nothing."""
        await begin(store, "r", *events("r", 3))
        commits = [Commit(run_id="r", expected=3, events=events("r", 1)) for _ in range(MANY)]
        outcomes = await all_at_once(commit_patiently(store, commit) for commit in commits)
        won = [one for one in outcomes if isinstance(one, Committed)]
        lost = [one for one in outcomes if isinstance(one, Conflict)]
        assert (len(won), len(lost)) == (1, MANY - 1)
        assert {(one.expected, one.actual) for one in lost} == {(3, 4)}
        winner = commits[outcomes.index(won[0])]
        assert (await store.history("r"))[3].id == winner.events[0].id
        assert await store.last_sequence("r") == 4

    @pytest.mark.proves("K-12", "I3", "I1")
    async def test_writers_that_read_again_all_get_through(self, store: Store) -> None:
        """Optimistic writers lose a round, never an event."""
        await begin(store, "r")

        async def write(name: str) -> None:
            for _ in range(1_000):
                last = await store.last_sequence("r")
                try:
                    await patiently(store.append, "r", [event("r", id=name)], expected=last)
                except Conflict:
                    await asyncio.sleep(0)
                else:
                    return

        names = [f"event-{n}" for n in range(8)]
        await all_at_once(write(name) for name in names)
        history = await store.history("r")
        assert sorted(one.id for one in history) == names
        assert [one.sequence for one in history] == list(range(1, 9))

    @pytest.mark.proves("I11")
    async def test_of_many_starts_of_one_id_one_creates_the_run(self, store: Store) -> None:
        """All others learn which life has the id."""
        commits = [
            Commit(run_id="r", create=Run(id="r"), events=events("r", 1)) for _ in range(MANY)
        ]
        outcomes = await all_at_once(commit_patiently(store, commit) for commit in commits)
        won = [one for one in outcomes if isinstance(one, Committed)]
        lost = [one for one in outcomes if isinstance(one, RunExists)]
        assert (len(won), len(lost)) == (1, MANY - 1)
        assert {one.uid for one in lost} == {won[0].uid}
        assert await store.last_sequence("r") == 1

    @pytest.mark.proves("C-03", "I7")
    async def test_one_commit_made_many_times_at_once_happens_once(self, store: Store) -> None:
        """The first writes it; the other calls are answered that it is written."""
        await begin(store, "r")
        commit = Commit(run_id="r", events=events("r", 2))
        outcomes = await all_at_once(commit_patiently(store, commit) for _ in range(MANY))
        answers = [one for one in outcomes if isinstance(one, Committed)]
        assert len(answers) == MANY
        assert sorted(one.again for one in answers) == [False] + [True] * (MANY - 1)
        assert len(await store.history("r")) == 2

    @pytest.mark.proves("K-09", "I7")
    async def test_one_event_in_many_commits_is_recorded_once(self, store: Store) -> None:
        """The id of an event decides, in whichever commit it is."""
        await begin(store, "r")
        commits = [
            Commit(run_id="r", events=(event("r", id="charge"), event("r"))) for _ in range(MANY)
        ]
        outcomes = await all_at_once(commit_patiently(store, commit) for commit in commits)
        assert sum(isinstance(one, Committed) for one in outcomes) == 1
        assert sum(isinstance(one, DuplicateEvent) for one in outcomes) == MANY - 1
        assert len(await store.history("r")) == 2

    @pytest.mark.proves("S-05", "S-12", "S-17", "I5")
    async def test_no_run_is_claimed_twice(self, store: Store) -> None:
        """Claimers that come together share the runs out; each run has one owner."""
        ids = [f"r{n:02}" for n in range(MANY)]
        await begin_runnable(store, *ids)
        hauls = await all_at_once(
            patiently(store.claim_runs, f"w{n}", TTL, limit=5) for n in range(MANY)
        )
        claimed = [one for haul in hauls for one in haul]
        assert len({one.claim.token for one in claimed}) == len(claimed)
        assert len({one.run.id for one in claimed}) == len(claimed)
        rest = await store.claim_runs("last", TTL, limit=100)
        assert sorted(one.run.id for one in [*claimed, *rest]) == ids
        for one in claimed:
            assert (await store.get(one.run.id)).owner == one.claim.owner

    @pytest.mark.proves("S-12", "S-17", "I5")
    async def test_one_run_is_claimed_by_one(self, store: Store) -> None:
        """Of many who want the same run by its id, one gets it."""
        await begin(store, "r")
        hauls = await all_at_once(
            patiently(store.claim_runs, f"w{n}", TTL, run_ids=["r"]) for n in range(MANY)
        )
        assert sum(len(haul) for haul in hauls) == 1

    @pytest.mark.proves("C-28", "I5")
    async def test_old_and_new_owner_write_at_once(self, store: Store) -> None:
        """However they race, only the new owner's events are in the history."""
        for round in range(5):
            id = f"r{round}"
            await begin_runnable(store, id)
            old = await take(store, id, owner="old")
            await self.advance(store, 2 * TTL)
            new = await take(store, id, owner="new")
            late = [Commit(run_id=id, token=old.token, events=events(id, 1)) for _ in range(4)]
            good = [Commit(run_id=id, token=new.token, events=events(id, 1)) for _ in range(4)]
            mixed = [one for pair in zip(late, good, strict=True) for one in pair]
            outcomes = await all_at_once(commit_patiently(store, one) for one in mixed)
            assert [isinstance(one, Committed) for one in outcomes] == [False, True] * 4
            assert {one.token for one in await store.history(id)} == {new.token}

    @pytest.mark.proves("K-11", "S-22", "I12")
    async def test_readers_see_whole_commits(self, store: Store) -> None:
        """While a run is written, the history and record that are read are those of a commit."""
        await begin(store, "r")

        async def write() -> None:
            for n in range(1, 11):
                change = Change(ctx={"n": Raw(b"%d" % (3 * n))})
                await commit_patiently(
                    store, Commit(run_id="r", events=events("r", 3), change=change)
                )

        async def read() -> None:
            for _ in range(10):
                record = await store.get("r")
                assert record.sequence % 3 == 0
                assert int(bytes(record.ctx.get("n", Raw(b"0")))) == record.sequence
                sequences = [one.sequence for one in await store.history("r")]
                assert len(sequences) % 3 == 0
                assert sequences == list(range(1, len(sequences) + 1))

        await all_at_once([write(), read(), read()])

    @pytest.mark.proves("K-04", "I12", "S-15")
    async def test_batches_that_overlap_do_not_lock_each_other_out(self, store: Store) -> None:
        """Batches of the same runs in other orders all come to an end, each commit once."""
        ids = [f"r{n}" for n in range(6)]
        for id in ids:
            await begin(store, id)

        async def write(order: list[str]) -> None:
            left = [Commit(run_id=id, events=events(id, 1)) for id in order]
            for _ in range(1000):
                outcomes = await store.commit(left)
                pairs = zip(left, outcomes, strict=True)
                left = [commit for commit, one in pairs if not isinstance(one, Committed)]
                if not left:
                    return
                await asyncio.sleep(0)
            raise AssertionError(f"{len(left)} commits never got through")

        orders = [ids[n:] + ids[:n] for n in range(6)] + [ids[::-1]]
        await all_at_once(write(order) for order in orders)
        assert [await store.last_sequence(id) for id in ids] == [len(orders)] * 6
