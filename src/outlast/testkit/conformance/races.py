"""Races: many callers for one key, task, timer or inbox, and for the end of a run."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest
from msgspec import Raw

from outlast.errors import NotFound
from outlast.model import Change, Commit, Committed, Receipt, Status, Task, Timer
from outlast.ports import Capability, Store
from outlast.testkit.conformance.concurrency import MANY, all_at_once
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    claimed_ids,
    commit_patiently,
    deliver,
    done,
    events,
    patiently,
    signal,
    take,
)


class Races(StoreContract):
    """One wins, all others are refused, and no acknowledged item is lost."""

    @needs(Capability.KEYS)
    @pytest.mark.proves("M-44", "I11")
    async def test_a_key_is_bound_by_one(self, store: Store) -> None:
        """Of many concurrent callers one gets None, all others its value."""
        answers = await all_at_once(
            patiently(store.remember, "scope", "key", str(n)) for n in range(MANY)
        )
        assert answers.count(None) == 1
        assert {one for one in answers if one is not None} == {str(answers.index(None))}

    @needs(Capability.TASKS)
    @pytest.mark.proves("S-05", "S-12", "S-15", "S-17")
    async def test_a_task_is_claimed_by_one(self, store: Store) -> None:
        """Of many workers that want a task, one gets it."""
        await begin(store, "r")
        await done(store, Commit(run_id="r", tasks=(Task(id="t", run_id="r"),)))
        claims = await all_at_once(
            patiently(store.claim_task, "r", "t", f"w{n}", ttl=TTL) for n in range(MANY)
        )
        assert sum(claim is not None for claim in claims) == 1

    @needs(Capability.TASKS)
    @pytest.mark.proves("S-23", "S-15", "I7", "I3")
    async def test_results_of_parallel_branches_all_stand(self, store: Store) -> None:
        """Workers of one run that finish at the same time overwrite nothing."""
        await begin(store, "r")
        ids = [f"t{n:02}" for n in range(MANY)]
        tasks = tuple(Task(id=id, run_id="r") for id in ids)
        await done(store, Commit(run_id="r", tasks=tasks))
        claims = [await store.claim_task("r", id, f"w-{id}", ttl=TTL) for id in ids]
        await all_at_once(
            patiently(store.save_task_result, c, Raw(b"1")) for c in claims if c is not None
        )
        assert sorted(one.step_name for one in await store.history("r")) == ids
        assert await store.find_available_tasks(limit=100) == []

    @needs(Capability.TIMERS)
    @pytest.mark.proves("I15", "M-44")
    async def test_a_timer_is_fired_by_one(self, store: Store) -> None:
        """Of many calls that mark a timer, one returns that it did."""
        await begin(store, "r")
        await store.schedule_timer(Timer(run_id="r", id="t", fire_at=await store.now()))
        answers = await all_at_once(
            patiently(store.mark_timer_fired, "r", "t") for _ in range(MANY)
        )
        assert sorted(answers) == [False] * (MANY - 1) + [True]

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "C-17", "I3")
    async def test_items_of_many_senders_all_arrive(self, store: Store) -> None:
        """Every acknowledged item has a number of its own, without a gap."""
        await begin(store, "r")
        receipts = await all_at_once(
            patiently(deliver, store, signal("r", id=f"i{n}")) for n in range(MANY)
        )
        assert sorted(one.number for one in receipts) == list(range(1, MANY + 1))
        inbox = await store.inbox("r")
        assert {one.id: one.number for one in inbox} == {
            f"i{n}": receipt.number for n, receipt in enumerate(receipts)
        }

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "M-23")
    async def test_one_item_sent_many_times_at_once_arrives_once(self, store: Store) -> None:
        """Duplicates that race get the same number, and one of them is the first."""
        await begin(store, "r")
        once = signal("r", id="pay-7")
        receipts = await all_at_once(patiently(deliver, store, once) for _ in range(MANY))
        assert {one.number for one in receipts} == {1}
        assert sorted(one.again for one in receipts) == [False] + [True] * (MANY - 1)

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "C-17")
    async def test_a_send_that_races_with_parking_is_not_slept_over(self, store: Store) -> None:
        """Whichever comes first, a run with an unseen item can be claimed afterwards."""
        for round in range(MANY):
            id = f"r{round}"
            await begin_runnable(store, id)
            claim = await take(store, id)
            rest = Commit(
                run_id=id, token=claim.token, change=Change(runnable_at=None), release=True
            )
            calls: list[Awaitable[object]] = [
                patiently(deliver, store, signal(id)),
                commit_patiently(store, rest),
            ]
            await all_at_once(calls if round % 2 else reversed(calls))
            await store.release([claim])
            assert await claimed_ids(store) == [id]

    @needs(Capability.INBOX)
    @pytest.mark.proves("I16", "I18")
    async def test_a_send_that_races_with_the_end_is_kept_or_refused(self, store: Store) -> None:
        """An item that was acknowledged is in the inbox; one that came too late was refused."""
        for round in range(MANY):
            id = f"r{round}"
            await begin(store, id)
            end = Commit(run_id=id, change=Change(status=Status.COMPLETED))
            calls: list[Awaitable[object]] = [
                store.send([signal(id)]),
                commit_patiently(store, end),
            ]
            answers = await all_at_once(calls if round % 2 else reversed(calls))
            sent = next(one for one in answers if isinstance(one, list))
            kept = await store.inbox(id)
            assert len(kept) == sum(isinstance(one, Receipt) for one in sent)

    @needs(Capability.DELETE)
    @pytest.mark.proves("I25", "I12", "I17")
    async def test_deleting_races_with_writing(self, store: Store) -> None:
        """A commit that loses to a deletion finds nothing and leaves nothing."""
        for round in range(MANY):
            id = f"r{round}"
            await begin(store, id, *events(id, 1))
            commit = Commit(run_id=id, events=events(id, 1))
            calls: list[Awaitable[object]] = [
                commit_patiently(store, commit),
                patiently(store.delete, id),
            ]
            answers = await all_at_once(calls if round % 2 else reversed(calls))
            assert True in answers
            assert any(isinstance(one, (Committed, NotFound)) for one in answers)
            assert not await store.exists(id)
            assert await store.history(id) == []
