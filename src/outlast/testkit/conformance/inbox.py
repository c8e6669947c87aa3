"""Inboxes: what is sent to a run arrives once, in order, and stays until its owner consumes it."""

from __future__ import annotations

import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, InvalidId, InvalidValue, NotFound, RunClosed
from outlast.model import Commit, Item, Receipt, Send, Status
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    deliver,
    done,
    events,
    finish,
    refused,
    signal,
    take,
    unchanged,
)


class Inboxes(StoreContract, needs=(Capability.INBOX,)):
    """`send`, `inbox`, and the items that a commit consumes."""

    # -- sending ------------------------------------------------------------------------------

    @pytest.mark.proves("I16", "C-17", "I28")
    async def test_an_item_arrives_with_all_its_fields(self, store: Store) -> None:
        """What was sent is what is read; number and time are the store's."""
        await begin(store, "r")
        item = Item(
            kind="signal",
            name="approved ✓",
            id="dedup-1",
            data=Raw(b'{"b": 1, "a": "\\u0000"}'),
            sender="other~1",
            number=99,
        )
        before = await store.now()
        assert await deliver(store, Send(run_id="r", item=item)) == Receipt(1)
        (found,) = await store.inbox("r")
        assert (found.kind, found.name, found.id) == ("signal", "approved ✓", "dedup-1")
        assert (found.data, found.sender, found.number) == (item.data, "other~1", 1)
        assert before <= found.sent_at <= await store.now()

    @pytest.mark.proves("I16", "C-17")
    async def test_items_are_numbered_in_the_order_of_arrival(self, store: Store) -> None:
        """1, 2, 3 … per run: first in, first out, whatever the names."""
        for id in ("r", "s"):
            await begin(store, id)
        for name in ("z", "a", "m"):
            await deliver(store, signal("r", name))
        await deliver(store, signal("s", "other"))
        assert [(one.number, one.name) for one in await store.inbox("r")] == [
            (1, "z"),
            (2, "a"),
            (3, "m"),
        ]
        assert [(one.number, one.name) for one in await store.inbox("s")] == [(1, "other")]
        assert (await store.get("r")).inbox == 3

    @pytest.mark.proves("I16")
    async def test_several_items_in_one_call(self, store: Store) -> None:
        """Each send is answered in its place; a refusal does not touch the others."""
        for id in ("a", "b", "ended"):
            await begin(store, id)
        await finish(store, "ended")
        sends = [signal("b"), signal("unknown"), signal("a"), signal("ended"), signal("b")]
        first, unknown, second, closed, third = await store.send(sends)
        assert (first, second, third) == (Receipt(1), Receipt(1), Receipt(2))
        assert isinstance(unknown, NotFound)
        assert isinstance(closed, RunClosed)
        assert await store.send([]) == []

    @pytest.mark.proves("I16", "C-17", "M-23")
    async def test_the_same_item_is_taken_once(self, store: Store) -> None:
        """Sent again, an id changes nothing and gives the receipt of the first time."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        once = signal("r", id="pay-7", data=Raw(b"1"))
        assert await deliver(store, once) == Receipt(2)
        async with unchanged(store, "r"):
            assert await deliver(store, once) == Receipt(2, again=True)
            changed = signal("r", id="pay-7", data=Raw(b"2"))
            assert await deliver(store, changed) == Receipt(2, again=True)
        assert [one.data for one in await store.inbox("r", after=1)] == [Raw(b"1")]

    @pytest.mark.proves("I16", "M-23")
    async def test_the_same_item_twice_in_one_call(self, store: Store) -> None:
        """Also within one call an id counts once."""
        await begin(store, "r")
        once = signal("r", id="pay-7")
        assert await store.send([once, once]) == [Receipt(1), Receipt(1, again=True)]
        assert len(await store.inbox("r")) == 1

    @pytest.mark.proves("I16", "M-23")
    async def test_the_same_item_is_not_taken_again_after_it_was_consumed(
        self, store: Store
    ) -> None:
        """An id counts for the whole life of the run, not only while the item waits."""
        await begin(store, "r")
        once = signal("r", id="pay-7")
        await deliver(store, once)
        await done(store, Commit(run_id="r", consumes=(1,), seen=1))
        assert await deliver(store, once) == Receipt(1, again=True)
        assert await store.inbox("r") == []

    @pytest.mark.proves("I16", "C-06")
    async def test_an_item_for_a_run_that_is_not_there(self, store: Store) -> None:
        """`NotFound`, as a value, with the run's id."""
        (refusal,) = await store.send([signal("unknown")])
        assert isinstance(refusal, NotFound)
        assert (refusal.kind, refusal.id) == ("run", "unknown")

    @pytest.mark.proves("I16", "I18")
    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    async def test_an_item_for_an_ended_run_is_refused(self, store: Store, status: Status) -> None:
        """It is never acknowledged and lost: the refusal says how the run ended."""
        await begin(store, "r")
        await deliver(store, signal("r"))  # one that came in time makes no difference
        await finish(store, "r", status)
        async with unchanged(store, "r"):
            (refusal,) = await store.send([signal("r")])
        assert isinstance(refusal, RunClosed)
        assert refusal.status == status

    @pytest.mark.proves("I16", "I18")
    async def test_a_sender_that_asks_again_after_the_end_gets_its_receipt(
        self, store: Store
    ) -> None:
        """An item that had arrived before the end had arrived: the retry says so."""
        await begin(store, "r")
        once = signal("r", id="pay-7")
        await deliver(store, once)
        await finish(store, "r")
        assert await deliver(store, once) == Receipt(1, again=True)

    @pytest.mark.proves("I16", "I25")
    async def test_an_item_for_another_life_is_refused(self, store: Store) -> None:
        """A send that names a life reaches that life only."""
        created = await begin(store, "r")
        async with unchanged(store, "r"):
            (refusal,) = await store.send([signal("r", uid="gone")])
        assert isinstance(refusal, Fenced)
        assert await deliver(store, signal("r", uid=created.uid)) == Receipt(1)

    @pytest.mark.proves("K-15", "I16")
    async def test_bad_items_are_refused(self, store: Store) -> None:
        """One item without id or kind stops the call before anything is sent."""
        await begin(store, "r")
        for bad in (signal("r", id=""), signal("r", kind=""), signal("a:b"), signal("")):
            async with unchanged(store, "r"):
                with pytest.raises(InvalidId):
                    await store.send([signal("r"), bad])

    # -- reading ------------------------------------------------------------------------------

    @pytest.mark.proves("C-17", "C-06")
    async def test_an_inbox_is_read_from_a_position(self, store: Store) -> None:
        """`after` is exclusive, `limit` bounds the page; an unknown run has an empty inbox."""
        await begin(store, "r")
        for _ in range(4):
            await deliver(store, signal("r"))
        assert [one.number for one in await store.inbox("r", after=1, limit=2)] == [2, 3]
        assert await store.inbox("r", after=4) == []
        assert await store.inbox("unknown") == []
        with pytest.raises(InvalidValue):
            await store.inbox("r", after=-1)
        with pytest.raises(InvalidValue):
            await store.inbox("r", limit=0)

    @pytest.mark.proves("I16", "C-17")
    async def test_a_full_inbox(self, store: Store) -> None:
        """More than a thousand items arrive in one call, are read in pages and consumed in one."""
        await begin(store, "r")
        count = 1_200
        receipts = await store.send([signal("r", f"{n}") for n in range(count)])
        assert receipts == [Receipt(n) for n in range(1, count + 1)]
        first = await store.inbox("r")
        rest = await store.inbox("r", after=first[-1].number)
        assert [one.name for one in [*first, *rest]] == [f"{n}" for n in range(count)]
        assert len(first) == 1000
        numbers = tuple(range(1, count + 1))
        await done(store, Commit(run_id="r", consumes=numbers, seen=count))
        assert await store.inbox("r") == []

    # -- consuming ------------------------------------------------------------------------------

    @pytest.mark.proves("I16", "I12", "C-17")
    async def test_items_are_consumed_with_their_commit(self, store: Store) -> None:
        """The commit that records a signal removes it; numbers go on where they were."""
        await begin(store, "r")
        for _ in range(3):
            await deliver(store, signal("r"))
        await done(store, Commit(run_id="r", events=events("r", 2), consumes=(1, 3), seen=3))
        assert [one.number for one in await store.inbox("r")] == [2]
        assert await deliver(store, signal("r")) == Receipt(4)

    @pytest.mark.proves("I16", "I12")
    async def test_a_refused_commit_consumes_nothing(self, store: Store) -> None:
        """An item stays until a commit that consumes it is durable."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        stale = Commit(run_id="r", expected=9, events=events("r", 1), consumes=(1,))
        await refused(store, stale, Conflict)
        assert len(await store.inbox("r")) == 1

    @pytest.mark.proves("I16", "I5")
    async def test_a_stale_owner_consumes_nothing(self, store: Store) -> None:
        """A signal is not lost to a worker that was superseded."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        old = await take(store, "r")
        await self.advance(store, 2 * TTL)
        await take(store, "r", owner="other")
        await refused(store, Commit(run_id="r", token=old.token, consumes=(1,)), Fenced)

    @pytest.mark.proves("I5", "C-17")
    async def test_sending_needs_no_claim(self, store: Store) -> None:
        """Everybody but the owner writes to the inbox, and the owner's token stays good."""
        await begin(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        await done(store, Commit(run_id="r", token=claim.token, expected=0, revision=1))
