"""Families: what becomes of the runs below a run that begins another life, or is deleted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outlast.errors import NotFound, RunsOpen
from outlast.model import Commit, Creation, Fact, Item, Run, Send, Start, Status
from outlast.model.run import MOVED_TO, MOVING, Change
from outlast.model.run_contents import RECEIPTS_CARRIED
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    begin,
    claimed_ids,
    deliver,
    done,
    events,
    finish,
    outcome_of,
    take,
)
from outlast.testkit.conformance.scenario import signal as to_signal

FACT = Fact.of(b"a value that a tree shares")


class Families(StoreContract, needs=(Capability.DELETE, Capability.CHILDREN)):
    """`Creation.REPLACE`, `carry_inbox` and `delete`, for runs that have descendants."""

    @pytest.mark.proves("I21", "I25")
    async def test_a_descendant_that_has_not_ended_goes_on(self, store: Store) -> None:
        """A run that begins another life leaves what runs below it untouched: record, history and
        inbox. Descendants that have ended go with the old life."""
        await _family(store)
        before = [await store.get(id) for id in ("r~open", "r~over~deep")]
        await done(store, _next_life())
        assert [await store.get(id) for id in ("r~open", "r~over~deep")] == before
        assert len(await store.history("r~open")) == 2
        assert not await store.exists("r~over")
        assert await claimed_ids(store) == ["r~open"]

    @pytest.mark.proves("I21", "I25")
    async def test_all_descendants_may_stay(self, store: Store) -> None:
        """With `carry_tree`, also those that have ended: the new life may ask for their results."""
        await _family(store)
        await done(store, _next_life(carry_tree=True))
        for id in ("r~open", "r~over", "r~over~deep"):
            assert len(await store.history(id)) >= 2

    @needs(Capability.FACTS)
    @pytest.mark.proves("I25")
    async def test_who_goes_on_keeps_the_facts_of_the_tree(self, store: Store) -> None:
        """The facts of a tree stay as long as a run of it may read them, and no longer."""
        await _family(store)
        await done(store, Commit(run_id="r", facts=(FACT,)))
        await done(store, _next_life())
        assert await store.find_fact(FACT.hash, root="r") is not None
        for id in ("r~open", "r~over~deep"):
            await finish(store, id)
        await done(store, _next_life())
        assert await store.find_fact(FACT.hash, root="r") is None

    @needs(Capability.KEYS)
    @pytest.mark.proves("I25")
    async def test_who_goes_on_keeps_its_keys(self, store: Store) -> None:
        """Idempotency keys stay with the run that owns them, also if it is yet to be created."""
        await _family(store)
        ids = ("r", "r~open", "r~over", "r~open~next")
        for id in ids:
            await store.remember("scope", f"of {id}", "1", run_id=id)
        await done(store, _next_life())
        found = [await store.recall("scope", f"of {id}") for id in ids]
        assert found == [None, "1", None, "1"]

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "I21")
    async def test_the_commit_that_ends_a_life_reaches_its_children(self, store: Store) -> None:
        """A child is asked to stop by the same commit that ends the life of its parent."""
        await _family(store)
        item = Item(kind="cancel", name="its parent has ended")
        await done(store, _next_life(sends=(Send(run_id="r~open", item=item),)))
        assert [one.kind for one in await store.inbox("r~open")] == ["cancel"]

    @pytest.mark.proves("I25")
    async def test_a_descendant_that_is_being_moved_stays(self, store: Store) -> None:
        """It is closed, but may not have arrived in the other store."""
        await _family(store)
        transfer = Change(
            status=Status.CANCELLED, wait_kind=MOVING, error=f"{MOVED_TO}x", runnable_at=None
        )
        await done(store, Commit(run_id="r~open", force=True, change=transfer))
        await done(store, _next_life())
        assert (await store.get("r~open")).wait_kind == MOVING
        with pytest.raises(RunsOpen):
            await store.delete("r~open", only_ended=True)

    @pytest.mark.proves("I25")
    async def test_a_life_that_begins_ended_replaces_the_whole_tree(self, store: Store) -> None:
        """A record that says where a run was moved to stands for its tree."""
        await _family(store)
        gone = Run(id="r", status=Status.CANCELLED)
        new = Commit(run_id="r", create=gone, creation=Creation.REPLACE, force=True)
        await done(store, new)
        left = [await store.exists(id) for id in ("r", "r~open", "r~over", "r~over~deep")]
        assert left == [True, False, False, False]

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "I21")
    async def test_a_child_is_reached_by_the_commit_that_begins_it(self, store: Store) -> None:
        """A run that ends in the turn in which it asked for a child begins it and asks it to stop."""
        await begin(store, "r")
        cancel = Send(run_id="r~1", item=Item(kind="cancel"))
        start = Start(Run(id="r~1", parent="r"), events("r~1", 1))
        committed = await done(store, Commit(run_id="r", starts=(start,), sends=(cancel,)))
        assert committed.undelivered == ()
        assert [one.kind for one in await store.inbox("r~1")] == ["cancel"]
        assert await claimed_ids(store) == ["r~1"]

    # -- receipts -----------------------------------------------------------------------------

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16")
    async def test_the_last_items_are_remembered_in_the_next_life(self, store: Store) -> None:
        """An item that is sent again after another life has started is known, if it was among the last
        ones; one that still waits is always known."""
        await begin(store, "r")
        await deliver(store, to_signal("r", id="waits"))
        for n in range(RECEIPTS_CARRIED + 10):
            await deliver(store, to_signal("r", id=f"i{n}"))
        consumes = tuple(range(2, RECEIPTS_CARRIED + 12))
        await done(store, _next_life(carry_inbox=True, consumes=consumes))
        for id in ("waits", "i10", f"i{RECEIPTS_CARRIED + 9}"):
            (receipt,) = await store.send([to_signal("r", id=id)])
            assert getattr(receipt, "again", False), id
        assert [one.id for one in await store.inbox("r")] == ["waits"]

    @needs(Capability.INBOX, Capability.MOVE)
    @pytest.mark.proves("I16")
    async def test_receipts_do_not_grow_from_life_to_life(self, store: Store) -> None:
        """What a run remembers of consumed items is bounded, however many lives it has had."""
        await begin(store, "r")
        number = 0
        for _ in range(4):
            sent = range(number + 1, number + 501)
            number = sent[-1]
            await store.send([to_signal("r", id=f"i{n}") for n in sent])
            await done(store, _next_life(carry_inbox=True, consumes=tuple(sent)))
        assert len((await store.contents("r")).receipts) <= RECEIPTS_CARRIED

    # -- deletion -----------------------------------------------------------------------------

    @pytest.mark.proves("I25", "I21")
    async def test_a_tree_that_has_not_ended_is_refused(self, store: Store) -> None:
        """With `only_ended` a tree is deleted when all of it has ended; till then the error names the
        runs that have not, abandoned ones below an ended run included, and nothing is deleted."""
        await _family(store)
        with pytest.raises(RunsOpen) as refusal:
            await store.delete("r", only_ended=True)
        assert sorted(refusal.value.open) == ["r", "r~open", "r~over~deep"]
        await finish(store, "r")
        with pytest.raises(RunsOpen, match="r~open"):
            await store.delete("r", only_ended=True)
        assert await store.exists("r~over")
        for id in ("r~open", "r~over~deep"):
            await finish(store, id)
        assert await store.delete("r", only_ended=True)
        assert not await store.exists("r~over")
        assert not await store.delete("r", only_ended=True)

    @needs(Capability.INBOX)
    @pytest.mark.proves("I25", "I16", "I17")
    async def test_open_runs_go_as_they_were_seen(self, store: Store) -> None:
        """A tree with open runs is deleted if each is still as the caller has seen it, held or not, and
        items are delivered in the same step: a run elsewhere learns of it, and the owner's commit finds
        nothing."""
        await _family(store)
        await begin(store, "s")
        claim = await take(store, "r~open")
        seen = await _seen(store)
        sends = [Send(run_id="s", item=Item(kind="cancel")), Send(run_id="x", item=Item(kind="k"))]
        assert await store.delete("r", only_ended=True, open_at=seen, sends=sends)
        left = [await store.exists(id) for id in ("r", "r~open", "r~over", "r~over~deep")]
        assert left == [False] * 4
        assert [one.kind for one in await store.inbox("s")] == ["cancel"]
        assert await claimed_ids(store) == ["s"]
        late = Commit(run_id="r~open", uid=claim.uid, token=claim.token, events=events("r~open", 1))
        assert isinstance(await outcome_of(store, late), NotFound)

    @needs(Capability.INBOX)
    @pytest.mark.proves("I25", "I16")
    async def test_an_open_run_that_went_on_is_not_deleted(self, store: Store) -> None:
        """One that was committed to since it was seen, or was not seen at all, is named, and nothing is
        deleted or delivered; one that is seen with no commit goes as it is."""
        await _family(store)
        await begin(store, "s")
        seen = await _seen(store)
        await done(store, Commit(run_id="r~open", events=events("r~open", 1)))
        send = Send(run_id="s", item=Item(kind="cancel"))
        with pytest.raises(RunsOpen) as refusal:
            await store.delete("r", only_ended=True, open_at=seen, sends=[send])
        assert list(refusal.value.open) == ["r~open"]
        del seen["r"]
        with pytest.raises(RunsOpen) as refusal:
            await store.delete("r", only_ended=True, open_at=seen, sends=[send])
        assert sorted(refusal.value.open) == ["r", "r~open"]
        assert await store.inbox("s") == []
        assert await store.exists("r~over~deep")
        seen |= {"r": None, "r~open": None}
        assert not await store.delete("r", uid="x", only_ended=True, open_at=seen, sends=[send])
        assert await store.inbox("s") == []
        assert await store.delete("r", only_ended=True, open_at=seen, sends=[send])
        assert not await store.exists("r~open")
        assert len(await store.inbox("s")) == 1


async def _seen(store: Store) -> dict[str, str | None]:
    """The last commits of the open runs of a family."""
    return {id: (await store.get(id)).commit_id for id in ("r", "r~open", "r~over~deep")}


async def _family(store: Store) -> None:
    """A run with a child that runs, and one that has ended with a child of its own that has not."""
    await begin(store, "r")
    for id, parent in (("r~open", "r"), ("r~over", "r"), ("r~over~deep", "r~over")):
        due = NOW if id == "r~open" else None
        born = Run(id=id, parent=parent, runnable_at=due)
        await done(store, Commit(run_id=parent, starts=(Start(born, events(id, 2)),)))
    await finish(store, "r~over")


def _next_life(**parts: Any) -> Commit:
    life = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE, force=True)
    return msgspec.structs.replace(life, **parts)
