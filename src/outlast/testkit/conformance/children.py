"""Children: runs that begin with a commit of their parent, once, however often it is replayed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, InvalidCommit, InvalidId
from outlast.model import Commit, Run, Start, Status
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    begin,
    claimed_ids,
    done,
    event,
    events,
    finish,
    refused,
    take,
    unchanged,
)


def child(id: str, parent: str = "p", **record: Any) -> Run:
    """The record of a child."""
    return Run(id=id, parent=parent, **{"workflow": "ship", **record})


class Children(StoreContract, needs=(Capability.CHILDREN,)):
    """`starts` of a commit."""

    @pytest.mark.proves("I21", "I12")
    async def test_a_child_begins_with_its_parents_commit(self, store: Store) -> None:
        """Record and first events of the child are there, numbered from 1, with the parent's."""
        await begin(store, "p", *events("p", 3))
        born = child("p~1", input=Raw(b"[1]"), status=Status.RUNNING, runnable_at=NOW)
        commit = Commit(run_id="p", events=events("p", 1), starts=(Start(born, events("p~1", 2)),))
        await done(store, commit)
        record = await store.get("p~1")
        assert (record.uid, record.parent, record.workflow) == (born.uid, "p", "ship")
        assert (record.input, record.status, record.sequence) == (Raw(b"[1]"), Status.RUNNING, 2)
        assert [one.sequence for one in await store.history("p~1")] == [1, 2]
        assert await claimed_ids(store) == ["p~1"]

    @pytest.mark.proves("I21", "I5")
    async def test_a_child_is_not_its_parents_claim(self, store: Store) -> None:
        """The child of a claimed run is unclaimed: the parent's token does not fit it."""
        await begin(store, "p")
        claim = await take(store, "p")
        start = Start(child("p~1"), events("p~1", 1))
        await done(store, Commit(run_id="p", token=claim.token, starts=(start,)))
        born = await store.get("p~1")
        assert (born.token, born.owner) == (0, None)
        assert [one.token for one in await store.history("p~1")] == [0]
        late = Commit(run_id="p~1", token=claim.token, events=events("p~1", 1))
        await refused(store, late, Fenced)
        await done(store, Commit(run_id="p~1", events=events("p~1", 1)))

    @pytest.mark.proves("I21", "I12")
    async def test_a_refused_parent_starts_no_child(self, store: Store) -> None:
        """A child is born with a commit that is durable, or not at all."""
        await begin(store, "p")
        stale = Commit(run_id="p", expected=9, starts=(Start(child("p~1")),))
        await refused(store, stale, Conflict)
        assert not await store.exists("p~1")

    @pytest.mark.proves("I21")
    async def test_a_child_that_exists_is_left_alone(self, store: Store) -> None:
        """A parent that is replayed starts its child again: nothing happens to it."""
        await begin(store, "p")
        first = child("p~1", input=Raw(b"1"))
        await done(store, Commit(run_id="p", starts=(Start(first, events("p~1", 1)),)))
        claim = await take(store, "p~1")
        await done(store, Commit(run_id="p~1", token=claim.token, events=events("p~1", 2)))
        before = await store.get("p~1")
        again = Start(child("p~1", input=Raw(b"2")), (event("p~1"),))
        await done(store, Commit(run_id="p", starts=(again,)))
        assert await store.get("p~1") == before
        assert len(await store.history("p~1")) == 3

    @pytest.mark.proves("I21", "I18")
    async def test_a_child_that_has_ended_is_not_started_again(self, store: Store) -> None:
        """Its result stands."""
        await begin(store, "p")
        await done(store, Commit(run_id="p", starts=(Start(child("p~1")),)))
        await finish(store, "p~1", Status.FAILED)
        await done(store, Commit(run_id="p", starts=(Start(child("p~1", runnable_at=NOW)),)))
        assert (await store.get("p~1")).status is Status.FAILED
        assert await claimed_ids(store) == []

    @pytest.mark.proves("I21", "C-03")
    async def test_a_parents_commit_made_again_starts_nothing_again(self, store: Store) -> None:
        """The retry of the commit leaves the child as it is."""
        await begin(store, "p")
        commit = Commit(run_id="p", starts=(Start(child("p~1"), events("p~1", 1)),))
        await done(store, commit)
        await done(store, Commit(run_id="p~1", events=events("p~1", 1)))
        async with unchanged(store, "p", "p~1"):
            assert (await done(store, commit)).again

    @pytest.mark.proves("I21")
    async def test_several_children_and_their_children(self, store: Store) -> None:
        """A commit may start many; a child may start its own."""
        await begin(store, "p")
        starts = tuple(Start(child(f"p~{n}"), events(f"p~{n}", n)) for n in range(3))
        await done(store, Commit(run_id="p", starts=starts))
        grand = Start(child("p~1~x", "p~1"))
        await done(store, Commit(run_id="p~1", starts=(grand,)))
        assert [await store.last_sequence(f"p~{n}") for n in range(3)] == [0, 1, 2]
        assert (await store.get("p~1~x")).parent == "p~1"

    @pytest.mark.proves("I21")
    async def test_a_child_may_have_an_id_of_its_own(self, store: Store) -> None:
        """Such a child is a root of its own that knows its parent."""
        await begin(store, "p")
        await done(store, Commit(run_id="p", starts=(Start(child("shipment-7")),)))
        assert (await store.get("shipment-7")).parent == "p"

    @pytest.mark.proves("I21")
    async def test_a_child_is_a_run_like_any_other(self, store: Store) -> None:
        """It is claimed, written and ended without its parent noticing."""
        await begin(store, "p")
        await done(store, Commit(run_id="p", starts=(Start(child("p~1", runnable_at=NOW)),)))
        before = await store.get("p")
        claim = await take(store, "p~1")
        await done(store, Commit(run_id="p~1", token=claim.token, events=events("p~1", 1)))
        await finish(store, "p~1", token=claim.token)
        assert await store.get("p") == before

    @pytest.mark.proves("I21", "K-15")
    async def test_bad_children_are_refused(self, store: Store) -> None:
        """A child names its parent, has an id below it or its own, and events of its own."""
        await begin(store, "p")
        wrong_parent = Start(child("p~1", "q"))
        wrong_event = Start(child("p~1"), (event("p~2"),))
        twins = Start(child("p~1"), (event("p~1", id="e"), event("p~1", id="e")))
        async with unchanged(store, "p", "p~1", "p~2"):
            for start in (wrong_parent, wrong_event, twins):
                with pytest.raises(InvalidCommit):
                    await store.commit([Commit(run_id="p", starts=(start,))])
            for id in ("q~1", "", "p~", "p~a:b", "p~~1"):
                with pytest.raises(InvalidId):
                    await store.commit([Commit(run_id="p", starts=(Start(child(id)),))])
