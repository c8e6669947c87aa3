"""Batches: several commits at once, each all or nothing, each with an outcome of its own."""

from __future__ import annotations

import pytest

from outlast.errors import (
    Busy,
    Conflict,
    DuplicateEvent,
    Fenced,
    InvalidCommit,
    NotFound,
    RunClosed,
    RunExists,
)
from outlast.model import Change, Commit, Committed, Creation, Run, Status
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    begin,
    done,
    event,
    events,
    finish,
    owned,
    take,
    unchanged,
)


class Batches(StoreContract):
    """Many runs, one call."""

    @pytest.mark.proves("K-04")
    async def test_an_empty_batch_does_nothing(self, store: Store) -> None:
        """No commits, no outcomes."""
        await begin(store, "r")
        async with unchanged(store, "r"):
            assert await store.commit([]) == []

    @pytest.mark.proves("K-04", "I3")
    async def test_outcomes_come_in_the_order_of_the_commits(self, store: Store) -> None:
        """Whatever the order of locks, the n-th outcome is that of the n-th commit."""
        ids = [f"r{n}" for n in (7, 3, 9, 1, 5)]
        commits = [
            Commit(run_id=id, create=Run(id=id), events=events(id, n + 1))
            for n, id in enumerate(ids)
        ]
        outcomes = await store.commit(commits)
        answers = [one for one in outcomes if isinstance(one, Committed)]
        assert [(one.run_id, one.sequence) for one in answers] == [
            ("r7", 1),
            ("r3", 2),
            ("r9", 3),
            ("r1", 4),
            ("r5", 5),
        ]

    @pytest.mark.proves("K-13", "I12", "I4")
    async def test_a_refusal_does_not_touch_the_others(self, store: Store) -> None:
        """Each commit is decided on its own: every kind of refusal beside commits that succeed."""
        for id in ("conflict", "fenced", "duplicate", "closed", "exists", "good"):
            await begin(store, id, event(id, id="first"))
        await take(store, "fenced")
        await finish(store, "closed")
        refusals = {
            "conflict": Conflict,
            "fenced": Fenced,
            "duplicate": DuplicateEvent,
            "closed": RunClosed,
            "exists": RunExists,
            "missing": NotFound,
        }
        own = {
            "conflict": Commit(run_id="conflict", expected=0, events=events("conflict", 1)),
            "good": Commit(run_id="good", events=events("good", 2)),
            "fenced": Commit(run_id="fenced", events=events("fenced", 1)),
            "duplicate": Commit(
                run_id="duplicate", events=(event("duplicate"), event("duplicate", id="first"))
            ),
            "closed": Commit(run_id="closed", events=events("closed", 1)),
            "exists": Commit(run_id="exists", create=Run(id="exists")),
            "new": Commit(run_id="new", create=Run(id="new"), events=events("new", 1)),
            "missing": Commit(run_id="missing", events=events("missing", 1)),
        }
        before = await owned(store, *refusals)
        outcomes = dict(zip(own, await store.commit(list(own.values())), strict=True))
        assert await owned(store, *refusals) == before
        for id, refusal in refusals.items():
            assert isinstance(outcomes[id], refusal), (id, outcomes[id])
        assert await store.last_sequence("good") == 3
        assert await store.last_sequence("new") == 1

    @pytest.mark.proves("C-24", "I12")
    async def test_two_commits_of_one_run_in_a_batch_are_refused(self, store: Store) -> None:
        """The second would depend on the first: the batch is an error and writes nothing."""
        await begin(store, "r")
        await begin(store, "s")
        batch = [
            Commit(run_id="s", events=events("s", 1)),
            Commit(run_id="r", events=events("r", 1)),
            Commit(run_id="r", events=events("r", 1)),
        ]
        async with unchanged(store, "r", "s"):
            with pytest.raises(InvalidCommit):
                await store.commit(batch)

    @pytest.mark.proves("K-13", "K-15", "I12")
    async def test_a_malformed_commit_stops_its_batch_before_it_begins(self, store: Store) -> None:
        """Bad input is found before anything is written, wherever in the batch it is."""
        await begin(store, "r")
        batch = [
            Commit(run_id="r", events=events("r", 1)),
            Commit(run_id="new", create=Run(id="new")),
            Commit(run_id="bad", create=Run(id="other")),
        ]
        async with unchanged(store, "r", "new", "bad", "other"):
            with pytest.raises(InvalidCommit):
                await store.commit(batch)

    @pytest.mark.proves("C-03", "C-20")
    async def test_a_whole_batch_made_again_is_written_once(self, store: Store) -> None:
        """A batch whose answer was lost is sent again as it is, and each commit is settled."""
        batch = [
            Commit(run_id=id, create=Run(id=id), events=events(id, 2)) for id in ("a", "b", "c")
        ]
        await store.commit(batch)
        async with unchanged(store, "a", "b", "c"):
            outcomes = await store.commit(batch)
        assert all(isinstance(one, Committed) and one.again for one in outcomes)

    @pytest.mark.proves("C-03", "C-20")
    async def test_a_batch_half_of_which_is_new(self, store: Store) -> None:
        """Of a batch made again, only what had not happened is written."""
        old = Commit(run_id="a", create=Run(id="a"), events=events("a", 1))
        await done(store, old)
        new = Commit(run_id="b", create=Run(id="b"), events=events("b", 1))
        first, second = await store.commit([old, new])
        assert isinstance(first, Committed)
        assert isinstance(second, Committed)
        assert (first.again, second.again) == (True, False)
        assert [await store.last_sequence(id) for id in ("a", "b")] == [1, 1]

    @needs(Capability.DELETE)
    @pytest.mark.proves("I12", "I25")
    async def test_a_replaced_run_and_its_child_do_not_share_a_batch(self, store: Store) -> None:
        """Replacing a run deletes its children, so a commit of one of them contradicts it."""
        await begin(store, "r")
        await begin(store, "r~child", parent="r")
        batch = [
            Commit(run_id="r~child", events=events("r~child", 1)),
            Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE),
        ]
        async with unchanged(store, "r", "r~child"):
            with pytest.raises(InvalidCommit):
                await store.commit(batch)

    @pytest.mark.proves("K-04", "I13")
    async def test_a_batch_of_many_runs(self, store: Store) -> None:
        """A hundred runs in one batch each get what is theirs."""
        ids = [f"r{n:03}" for n in range(100)]
        await store.commit(
            [
                Commit(run_id=id, create=Run(id=id), events=events(id, n % 3 + 1))
                for n, id in enumerate(ids)
            ]
        )
        sizes = [(await store.get(id)).sequence for id in ids]
        assert sizes == [n % 3 + 1 for n in range(100)]
        assert [len(await store.history(id)) for id in ids] == sizes

    @pytest.mark.proves("C-24")
    async def test_one_commit_is_always_atomic(self, store: Store) -> None:
        """`atomic` asks nothing more of a batch of one: every store can do it."""
        only = Commit(run_id="r", create=Run(id="r"), events=events("r", 1))
        (outcome,) = await store.commit([only], atomic=True)
        assert isinstance(outcome, Committed)


class AtomicBatches(StoreContract, needs=(Capability.ATOMIC_BATCH,)):
    """With `atomic`, one refusal refuses all."""

    @pytest.mark.proves("K-04", "C-24")
    async def test_an_atomic_batch_is_written_as_a_whole(self, store: Store) -> None:
        """If nothing is refused, all are written."""
        await begin(store, "a")
        outcomes = await store.commit(
            [
                Commit(run_id="a", events=events("a", 1)),
                Commit(run_id="b", create=Run(id="b"), events=events("b", 2)),
            ],
            atomic=True,
        )
        assert all(isinstance(one, Committed) for one in outcomes)
        assert [await store.last_sequence(id) for id in ("a", "b")] == [1, 2]

    @pytest.mark.proves("K-04", "K-13", "C-24", "I12")
    @pytest.mark.parametrize("position", [0, 1, 2])
    async def test_one_refusal_refuses_an_atomic_batch(self, store: Store, position: int) -> None:
        """Wherever the refusal is, nothing is written; the other commits get `Busy`, so they can be retried."""
        await begin(store, "a")
        await begin(store, "b")
        batch = [
            Commit(run_id="a", events=events("a", 1), change=Change(status=Status.COMPLETED)),
            Commit(run_id="b", events=events("b", 1)),
        ]
        batch.insert(position, Commit(run_id="missing", events=events("missing", 1)))
        async with unchanged(store, "a", "b", "missing"):
            outcomes = await store.commit(batch, atomic=True)
        refused = outcomes.pop(position)
        assert isinstance(refused, NotFound)
        assert all(isinstance(one, Busy) for one in outcomes)

    @pytest.mark.proves("K-04", "C-03")
    async def test_an_atomic_batch_made_again(self, store: Store) -> None:
        """A retry finds the whole batch written."""
        batch = [Commit(run_id=id, create=Run(id=id), events=events(id, 1)) for id in ("a", "b")]
        await store.commit(batch, atomic=True)
        outcomes = await store.commit(batch, atomic=True)
        assert all(isinstance(one, Committed) and one.again for one in outcomes)

    @pytest.mark.proves("K-04", "C-24")
    async def test_numbered_events_of_several_runs_are_appended_together(
        self, store: Store
    ) -> None:
        """`append_events` takes events of several runs, each with its sequence."""
        await begin(store, "a", event("a"))
        own = [event("a", sequence=2), event("b", sequence=1), event("a", sequence=3)]
        await store.append_events(own)
        assert [one.id for one in await store.history("a", after=1)] == [own[0].id, own[2].id]
        assert [one.id for one in await store.history("b")] == [own[1].id]

    @pytest.mark.proves("K-04", "K-13", "K-08", "C-24")
    async def test_a_gap_in_one_run_refuses_the_events_of_all(self, store: Store) -> None:
        """The error is that of the run with the gap, and no run has got anything."""
        await begin(store, "a", event("a"))
        async with unchanged(store, "a", "b"):
            with pytest.raises(Conflict) as caught:
                await store.append_events([event("b", sequence=1), event("a", sequence=3)])
        assert (caught.value.run_id, caught.value.expected, caught.value.actual) == ("a", 2, 1)
