"""Runnable: one time says when a run may be claimed, and no wake-up is ever lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlast.errors import Conflict
from outlast.model import Change, ClaimOnCreate, Commit, Creation, Run, Status
from outlast.model.times import EPOCH, NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    claimed_ids,
    deliver,
    done,
    events,
    finish,
    refused,
    signal,
    take,
)


class Runnable(StoreContract):
    """`runnable_at` and parking."""

    @pytest.mark.proves("C-16")
    async def test_a_run_without_a_time_is_parked(self, store: Store) -> None:
        """A run that names no time is not claimed by itself, however long one waits."""
        await begin(store, "r")
        await self.advance(store, 10**6)
        assert await claimed_ids(store) == []

    @pytest.mark.proves("C-16")
    async def test_what_cannot_be_claimed_wakes_no_worker(self, store: Store) -> None:
        """An append to a log that has no workflow, and a commit that is refused, cost no worker a
        look; a run that can be claimed does."""
        await store.append("log", events("log", 1))
        woken = store.notifier.wake_calls
        await store.append("log", events("log", 2))
        await store.commit([Commit(run_id="log", create=Run(id="log", runnable_at=NOW))])
        assert store.notifier.wake_calls == woken
        await begin_runnable(store, "r")
        assert store.notifier.wake_calls > woken

    @pytest.mark.proves("C-16", "I29")
    async def test_now_means_the_present_of_the_store(self, store: Store) -> None:
        """A time in the past counts as the store's current time, so that no run overtakes others."""
        before = await store.now()
        await begin(store, "new", runnable_at=NOW)
        await begin(store, "old", runnable_at=EPOCH + timedelta(days=1))
        await begin(store, "parked")
        await done(store, Commit(run_id="parked", change=Change(runnable_at=NOW)))
        for id in ("new", "old", "parked"):
            due = (await store.get(id)).runnable_at
            assert due is not None
            assert before <= due <= await store.now()
        assert sorted(await claimed_ids(store)) == ["new", "old", "parked"]

    @pytest.mark.proves("I15", "C-16")
    async def test_a_run_is_not_claimed_before_its_time(self, store: Store) -> None:
        """A delayed start waits for the store's clock, and not longer."""
        await begin(store, "r", runnable_at=await store.now() + timedelta(seconds=100))
        await self.advance(store, 50)
        assert await claimed_ids(store) == []
        await self.advance(store, 51)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I15", "C-16")
    async def test_the_owner_says_when_the_run_is_due_next(self, store: Store) -> None:
        """A commit that parks and releases a run decides when others may claim it."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        later = await store.now() + timedelta(seconds=100)
        sleep = Commit(
            run_id="r", token=claim.token, change=Change(runnable_at=later), release=True
        )
        assert not (await done(store, sleep)).still_runnable
        assert (await store.get("r")).runnable_at == later
        await self.advance(store, 50)
        assert await claimed_ids(store) == []
        await self.advance(store, 51)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("C-16")
    async def test_a_parked_run_rests(self, store: Store) -> None:
        """None parks a run that was runnable, released or with its lease run out."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await done(store, Commit(run_id="r", token=claim.token, change=Change(runnable_at=None)))
        await self.advance(store, 2 * TTL)
        assert await claimed_ids(store) == []
        await store.release([claim])
        assert await claimed_ids(store) == []

    @pytest.mark.proves("C-16")
    async def test_a_commit_that_says_nothing_leaves_the_time(self, store: Store) -> None:
        """Events and other changes do not move when the run is due."""
        later = await store.now() + timedelta(seconds=100)
        await begin(store, "r", runnable_at=later)
        await done(store, Commit(run_id="r", events=events("r", 1), change=Change(error="x")))
        assert (await store.get("r")).runnable_at == later

    @pytest.mark.proves("C-16", "I12")
    async def test_a_refused_commit_does_not_park(self, store: Store) -> None:
        """A refusal leaves the run runnable."""
        await begin_runnable(store, "r")
        parking = Commit(run_id="r", expected=9, change=Change(runnable_at=None))
        await refused(store, parking, Conflict)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("C-16")
    async def test_the_next_time_is_not_overslept(self, store: Store) -> None:
        """`next_runnable_at` is a hint that never comes after the first run that is due."""
        now = await store.now()
        for id, seconds in [("a", 300), ("b", 100), ("c", 200)]:
            await begin(store, id, runnable_at=now + timedelta(seconds=seconds))
        await begin(store, "parked")
        hint = await store.next_runnable_at()
        assert hint is not None
        assert hint <= now + timedelta(seconds=100)
        await self.advance(store, 150)
        hint = await store.next_runnable_at()
        assert hint is not None
        assert hint <= await store.now()


class WakeUps(StoreContract, needs=(Capability.INBOX,)):
    """A send makes its run runnable, whatever the owner does at the same time."""

    @pytest.mark.proves("I16", "C-17")
    async def test_a_send_wakes_a_parked_run(self, store: Store) -> None:
        """Whoever gets something is runnable now."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I16", "C-17")
    async def test_a_send_wakes_a_sleeping_run_before_its_time(self, store: Store) -> None:
        """A run that waits for a timer hears a signal at once."""
        await begin(store, "r", runnable_at=await store.now() + timedelta(days=7))
        await deliver(store, signal("r"))
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I16", "C-17")
    async def test_a_send_of_a_commit_wakes_its_run(self, store: Store) -> None:
        """Items that travel with another run's commit wake as well."""
        await begin(store, "sender")
        await begin(store, "r")
        await done(store, Commit(run_id="sender", sends=(signal("r"),)))
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I16", "C-17")
    async def test_a_send_does_not_delay_a_run_that_is_due(self, store: Store) -> None:
        """A run keeps its place in the order of those that wait."""
        await begin_runnable(store, "r")
        await self.advance(store, 10)
        await begin_runnable(store, "s")
        await self.advance(store, 10)
        await deliver(store, signal("r"))
        assert await claimed_ids(store) == ["r", "s"]

    @pytest.mark.proves("I16", "C-17", "I12")
    async def test_parking_over_an_unseen_item_leaves_the_run_runnable(self, store: Store) -> None:
        """An item that arrived after the owner read the inbox is reported: `still_runnable`."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        park = Commit(run_id="r", token=claim.token, change=Change(runnable_at=None), seen=0)
        assert (await done(store, park)).still_runnable
        await store.release([claim])
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I16", "C-17")
    async def test_sleeping_over_an_unseen_item_leaves_the_run_runnable(self, store: Store) -> None:
        """The same for a run that would sleep until a time."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        later = await store.now() + timedelta(days=1)
        sleep = Commit(run_id="r", token=claim.token, change=Change(runnable_at=later))
        assert (await done(store, sleep)).still_runnable
        await store.release([claim])
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("I16", "C-17")
    async def test_a_claim_is_not_released_over_an_unseen_item(self, store: Store) -> None:
        """The owner keeps the run and goes on: its token still writes, others wait."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        rest = Commit(run_id="r", token=claim.token, change=Change(runnable_at=None), release=True)
        assert (await done(store, rest)).still_runnable
        assert (await store.get("r")).owner == claim.owner
        assert await claimed_ids(store) == []
        (renewed,) = await store.renew([claim], TTL)
        assert renewed is not None
        consume = Commit(
            run_id="r",
            token=claim.token,
            consumes=(1,),
            seen=1,
            change=Change(runnable_at=None),
            release=True,
        )
        assert not (await done(store, consume)).still_runnable
        assert (await store.get("r")).owner is None

    @pytest.mark.proves("I16", "C-17")
    async def test_a_release_alone_is_held_back_too(self, store: Store) -> None:
        """A commit that only gives its claim back keeps it if something new waits."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        assert (
            await done(store, Commit(run_id="r", token=claim.token, release=True))
        ).still_runnable
        assert (await store.get("r")).owner == claim.owner

    @pytest.mark.proves("C-17")
    async def test_an_item_that_was_seen_does_not_keep_a_run_awake(self, store: Store) -> None:
        """An owner may leave an item in the inbox for later: it says that it has seen it."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        park = Commit(
            run_id="r",
            token=claim.token,
            seen=1,
            change=Change(runnable_at=None),
            release=True,
        )
        assert not (await done(store, park)).still_runnable
        assert await claimed_ids(store) == []
        await deliver(store, signal("r"))
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("C-17")
    async def test_a_consumed_item_does_not_keep_a_run_awake(self, store: Store) -> None:
        """What was consumed does not wait any more, whatever the owner says it has seen."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        park = Commit(
            run_id="r",
            token=claim.token,
            consumes=(1,),
            change=Change(runnable_at=None),
            release=True,
        )
        assert not (await done(store, park)).still_runnable
        assert await claimed_ids(store) == []

    @pytest.mark.proves("I16", "C-17")
    async def test_folding_one_item_does_not_hide_the_next(self, store: Store) -> None:
        """Between looking and parking a second item may come: it counts as unseen."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        await deliver(store, signal("r"))
        park = Commit(
            run_id="r", token=claim.token, consumes=(1,), seen=1, change=Change(runnable_at=None)
        )
        assert (await done(store, park)).still_runnable

    @pytest.mark.proves("C-17")
    async def test_only_a_run_that_rests_is_told(self, store: Store) -> None:
        """A commit in the middle of a turn, which neither parks nor releases, is not."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        middle = Commit(run_id="r", token=claim.token, events=events("r", 1))
        assert not (await done(store, middle)).still_runnable

    @pytest.mark.proves("I18", "I16")
    async def test_an_ended_run_is_not_woken(self, store: Store) -> None:
        """Items that came before the end do not make the run runnable after it."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        await finish(store, "r", Status.CANCELLED)
        assert (await store.get("r")).runnable_at is None
        assert await claimed_ids(store) == []
        assert len(await store.inbox("r")) == 1

    @pytest.mark.proves("I18")
    async def test_an_end_is_not_still_runnable(self, store: Store) -> None:
        """A commit that ends the run and releases it is not answered `still_runnable`, whatever is in the inbox."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await deliver(store, signal("r"))
        end = Change(status=Status.COMPLETED, runnable_at=None)
        last = Commit(run_id="r", token=claim.token, change=end, release=True)
        assert not (await done(store, last)).still_runnable

    @needs(Capability.DELETE)
    @pytest.mark.proves("I16", "C-17")
    async def test_an_inbox_that_is_carried_over_wakes_the_new_life(self, store: Store) -> None:
        """A run that starts again with unread items is runnable, whatever its record says."""
        await begin(store, "r")
        await deliver(store, signal("r"))
        replacing = Commit(
            run_id="r",
            create=Run(id="r"),
            creation=Creation.REPLACE,
            carry_inbox=True,
            hold=ClaimOnCreate("worker", TTL),
        )
        await done(store, replacing)
        await self.advance(store, 2 * TTL)
        assert await claimed_ids(store) == ["r"]
