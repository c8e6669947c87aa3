"""Deletion: a run goes with everything it owns, in one step, and its id starts fresh."""

from __future__ import annotations

import pytest
from msgspec import Raw

from outlast.errors import Fenced, NotFound
from outlast.model import (
    Claim,
    Commit,
    Receipt,
    Run,
    RunQuery,
    Status,
    Task,
)
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.run_contents import furnish, seen_of
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    claimed_ids,
    done,
    event,
    events,
    finish,
    refused,
    signal,
    take,
)


class Deletion(StoreContract, needs=(Capability.DELETE,)):
    """`delete`."""

    @pytest.mark.proves("I25", "M-09", "D-11", "C-07", "R-08")
    async def test_nothing_is_left_of_a_deleted_run(self, store: Store) -> None:
        """Record, history, inbox, timers, tasks, entries, activities, snapshot, facts, keys and
        children: all that the store can hold is gone, for every way of asking."""
        empty = await seen_of(store, "r")
        assert await furnish(store, "r") != empty
        assert await store.delete("r")
        assert await seen_of(store, "r") == empty
        assert await claimed_ids(store) == []

    @pytest.mark.proves("I25")
    async def test_only_the_life_that_is_meant_goes(self, store: Store) -> None:
        """A newer life of the id stays, with all it owns; an unknown id deletes nothing."""
        old = await begin(store, "r")
        assert await store.delete("r", uid=old.uid)
        assert not await store.delete("r", uid=old.uid)
        seen = await furnish(store, "r")
        assert not await store.delete("r", uid=old.uid)
        assert not await store.delete("nobody", uid=old.uid)
        assert await seen_of(store, "r") == seen
        assert await store.delete("r", uid=(await store.get("r")).uid)
        assert await store.find_one("r") is None

    @pytest.mark.proves("I25", "C-07")
    async def test_a_reused_id_starts_fresh(self, store: Store) -> None:
        """The next life of an id has nothing of the one before: no events, no ids taken."""
        old = await furnish(store, "r")
        await store.delete("r")
        assert await furnish(store, "r") is not old
        assert [one.sequence for one in await store.history("r")] == [1, 2]
        if Capability.INBOX in store.capabilities:
            assert [one.number for one in await store.inbox("r")] == [1]
        if Capability.ENTRIES in store.capabilities:
            assert len(await store.entries("r")) == 1
        assert await store.last_sequence("r") == 2

    @pytest.mark.proves("D-11", "M-09", "C-07", "R-08")
    async def test_deleting_says_whether_there_was_a_run(self, store: Store) -> None:
        """True once, False ever after, and for a run that never was; never an error."""
        await begin(store, "r")
        assert await store.delete("r") is True
        assert await store.delete("r") is False
        assert await store.delete("unknown") is False
        assert await store.find_one("r") is None

    @pytest.mark.proves("I25", "I27")
    async def test_other_runs_are_not_touched(self, store: Store) -> None:
        """Runs whose ids look alike, and all that is theirs, stay as they are."""
        others = ["rr", "r-1", "r_", "R", "r%", "s", "r r", "r."]
        for id in others:
            await furnish(store, id)
        await begin(store, "r")
        before = [await seen_of(store, id) for id in others]
        await store.delete("r")
        for id, seen in zip(others, before, strict=True):
            after = await seen_of(store, id)
            seen.pop("runs", None)
            after.pop("runs", None)
            assert after == seen

    @pytest.mark.proves("I25", "I27")
    @pytest.mark.parametrize("id", ["%", "_", "a_", "*", "[ab]", "a?", "\\", "'", "a--"])
    async def test_an_id_is_not_a_pattern(self, store: Store, id: str) -> None:
        """Characters that mean something to a database mean nothing here."""
        for other in ("ab", "a", "ab~1", "b"):
            await begin(store, other, parent="ab" if "~" in other else None)
        await begin(store, id)
        assert await store.delete(id)
        assert [await store.exists(one) for one in ("ab", "a", "ab~1", "b", id)] == [
            True,
            True,
            True,
            True,
            False,
        ]

    @pytest.mark.proves("I25", "I21")
    async def test_descendants_go_with_their_run(self, store: Store) -> None:
        """Deleting a run deletes the tree below it; deleting a child leaves the rest."""
        for id in ("p", "p~1", "p~1~a", "p~2", "p~é", "p2", "p~10"):
            parent = id.rpartition("~")[0] or None
            await begin(store, id, parent=parent)
        await store.delete("p~1")
        left = [id for id in ("p", "p~1", "p~1~a", "p~2", "p~10") if await store.exists(id)]
        assert left == ["p", "p~2", "p~10"]
        await store.delete("p")
        assert not any([await store.exists(id) for id in ("p", "p~2", "p~é", "p~10")])
        assert await store.exists("p2")

    @pytest.mark.proves("I25", "I21")
    async def test_a_large_tree_is_deleted(self, store: Store) -> None:
        """A run with a thousand children goes with all of them."""
        await begin(store, "p")
        ids = [f"p~{n}" for n in range(1_000)]
        await store.commit(
            [Commit(run_id=id, create=Run(id=id, parent="p"), events=events(id, 1)) for id in ids]
        )
        assert await store.delete("p")
        assert not any([await store.exists(id) for id in ("p", *ids)])
        assert await store.history("p~999") == []

    @pytest.mark.proves("I17", "I25")
    async def test_a_run_is_deleted_whoever_holds_it(self, store: Store) -> None:
        """A live claim does not protect a run; its owner finds nothing any more."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        assert await store.delete("r")
        late = Commit(run_id="r", token=claim.token, events=events("r", 1))
        await refused(store, late, NotFound)
        assert await store.renew([claim], TTL) == [None]
        assert await store.release([claim]) == [False]

    @pytest.mark.proves("I25", "I4", "I5")
    async def test_a_stale_owner_does_not_bring_a_deleted_run_back(self, store: Store) -> None:
        """An append under the claim of a run that was deleted is refused; no ghost is born."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await store.delete("r")
        with pytest.raises((Fenced, NotFound)):
            await store.append("r", events("r", 1), token=claim.token)
        assert not await store.exists("r")

    @pytest.mark.proves("I17")
    @pytest.mark.parametrize("status", Status)
    async def test_a_run_is_deleted_in_any_status(self, store: Store, status: Status) -> None:
        """Live or ended, also with events that this version cannot decode."""
        await begin(store, "r", event("r", type="of the future", data=Raw(b'{"error":[]}')))
        await finish(store, "r", status)
        assert await store.delete("r")
        assert await store.history("r") == []

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "I25")
    async def test_sends_for_an_old_life_do_not_reach_the_new_one(self, store: Store) -> None:
        """A result meant for the life that was deleted is refused."""
        old = await begin(store, "r")
        await store.delete("r")
        new = await begin(store, "r")
        (refusal,) = await store.send([signal("r", uid=old.uid)])
        assert isinstance(refusal, Fenced)
        assert await store.send([signal("r", uid=new.uid)]) == [Receipt(1)]

    @needs(Capability.TASKS)
    @pytest.mark.proves("I25", "I5")
    async def test_a_task_of_an_old_life_cannot_be_finished(self, store: Store) -> None:
        """The worker of a task that went with its run is fenced in the next life."""
        await begin(store, "r")
        task = Task(id="t", run_id="r")
        await done(store, Commit(run_id="r", tasks=(task,)))
        claim = await store.claim_task("r", "t", "worker")
        assert isinstance(claim, Claim)
        await store.delete("r")
        await begin(store, "r")
        await done(store, Commit(run_id="r", tasks=(task,)))
        with pytest.raises(Fenced):
            await store.save_task_result(claim, Raw(b"1"))
        assert await store.last_sequence("r") == 0

    @needs(Capability.FIND)
    @pytest.mark.proves("I25", "D-11", "R-09")
    async def test_a_deleted_run_is_found_by_nothing(self, store: Store) -> None:
        """No filter shows it any more."""
        await begin(store, "r", workflow="w", status=Status.HALTED, attributes={"n": 1})
        await store.delete("r")
        for query in (
            RunQuery(),
            RunQuery(workflow="w"),
            RunQuery(status=frozenset({Status.HALTED})),
            RunQuery(attributes={"n": 1}),
        ):
            assert (await store.find(query)).items == []
