"""Endings: a terminal status is final, frees what the run held, and loses nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import Raw

from outlast.errors import Fenced, RunClosed
from outlast.model import (
    Activity,
    Change,
    ClaimOnCreate,
    Commit,
    Entry,
    Fact,
    Run,
    Snapshot,
    Start,
    Status,
    Task,
    Timer,
)
from outlast.model.run import TERMINAL
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
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
    unchanged,
)

LIVE = [status for status in Status if status not in TERMINAL]


class Endings(StoreContract):
    """Completed, failed and cancelled."""

    @pytest.mark.proves("I18", "M-45", "D-01")
    @pytest.mark.parametrize("status", sorted(TERMINAL))
    async def test_an_ended_run_takes_no_more_events(self, store: Store, status: Status) -> None:
        """After a terminal status nothing is added; the refusal says how the run ended."""
        await begin(store, "r")
        last = Commit(run_id="r", events=events("r", 1), change=Change(status=status))
        assert (await done(store, last)).sequence == 1
        refusal = await refused(store, Commit(run_id="r", events=(event("r"),)), RunClosed)
        assert (refusal.run_id, refusal.status) == ("r", status)
        assert (await store.get("r")).status is status

    @pytest.mark.proves("I18")
    @pytest.mark.parametrize("status", sorted(Status))
    async def test_an_ended_run_changes_no_more(self, store: Store, status: Status) -> None:
        """No status, not even the one it has, can be set on a run that has ended."""
        await begin(store, "r")
        await finish(store, "r")
        await refused(store, Commit(run_id="r", change=Change(status=status)), RunClosed)

    @needs(Capability.TASKS, Capability.TIMERS, Capability.INBOX, Capability.CHILDREN)
    @pytest.mark.proves("I18", "I16")
    @pytest.mark.parametrize("part", ["events", "timers", "fired", "tasks", "sends", "starts"])
    async def test_an_ended_run_begins_nothing_new(self, store: Store, part: str) -> None:
        """No work, no timer, no child and no message comes from a run that has ended."""
        for id in ("r", "other"):
            await begin(store, id)
        now = await store.now()
        await done(store, Commit(run_id="r", timers=(Timer(run_id="r", id="t", fire_at=now),)))
        await finish(store, "r")
        parts: dict[str, tuple[object, ...]] = {
            "events": events("r", 1),
            "timers": (Timer(run_id="r", id="late", fire_at=now),),
            "fired": ("t",),
            "tasks": (Task(id="late", run_id="r"),),
            "sends": (signal("other"),),
            "starts": (Start(Run(id="r~1", parent="r")),),
        }
        async with unchanged(store, "r", "r~1", "other"):
            late = Commit(run_id="r", **{part: parts[part]})  # type: ignore[arg-type]
            await refused(store, late, RunClosed)

    @pytest.mark.proves("I18", "I17")
    async def test_not_even_force_reopens_an_ended_run(self, store: Store) -> None:
        """`force` takes a claim, it does not bring back the dead."""
        await begin(store, "r")
        await finish(store, "r")
        rescue = Commit(run_id="r", force=True, change=Change(status=Status.RUNNING))
        await refused(store, rescue, RunClosed)

    @pytest.mark.proves("D-01", "C-04")
    @pytest.mark.parametrize("status", LIVE)
    async def test_a_live_run_takes_events_in_any_status(
        self, store: Store, status: Status
    ) -> None:
        """Pending, running, waiting, halted and paused runs are open."""
        await begin(store, "r", status=status)
        assert (await done(store, Commit(run_id="r", events=events("r", 1)))).sequence == 1
        record = await store.get("r")
        assert (record.status, record.ended_at) == (status, None)

    @pytest.mark.proves("M-45", "C-05")
    async def test_the_end_is_dated(self, store: Store) -> None:
        """`ended_at` is the store's time of the commit that ended the run."""
        await begin(store, "r")
        await self.advance(store, 10)
        before = await store.now()
        await finish(store, "r", Status.FAILED)
        record = await store.get("r")
        assert record.ended_at is not None
        assert before <= record.ended_at <= await store.now()

    @pytest.mark.proves("M-45", "C-05")
    async def test_a_run_may_be_created_ended(self, store: Store) -> None:
        """A record that is saved in a terminal status has ended: dated, closed, not to be claimed."""
        await begin(store, "r", status=Status.COMPLETED, runnable_at=NOW)
        record = await store.get("r")
        assert record.ended_at is not None
        assert record.runnable_at is None
        assert await claimed_ids(store) == []
        await refused(store, Commit(run_id="r", events=events("r", 1)), RunClosed)

    @pytest.mark.proves("M-45", "I12", "I18")
    async def test_a_run_may_begin_and_end_in_one_commit(self, store: Store) -> None:
        """A workflow without waits is one commit: its events, its result and its end."""
        run = Run(id="r", runnable_at=NOW)
        whole = Commit(
            run_id="r",
            expected=0,
            create=run,
            hold=ClaimOnCreate("worker", TTL),
            events=events("r", 3),
            change=Change(status=Status.COMPLETED, result=Raw(b"1")),
        )
        assert (await done(store, whole)).sequence == 3
        record = await store.get("r")
        assert (record.status, record.result) == (Status.COMPLETED, Raw(b"1"))
        assert (record.owner, record.runnable_at) == (None, None)
        assert record.ended_at is not None
        assert await claimed_ids(store) == []

    @pytest.mark.proves("I18", "C-10")
    async def test_the_end_releases_the_claim(self, store: Store) -> None:
        """An ended run has no owner, is not runnable, and cannot be claimed, even by its id."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await finish(store, "r", token=claim.token)
        record = await store.get("r")
        assert (record.owner, record.claimed_until, record.runnable_at) == (None, None, None)
        await self.advance(store, 2 * TTL)
        assert await claimed_ids(store) == []
        assert await store.claim_runs("other", TTL, run_ids=["r"]) == []
        assert await store.renew([claim], TTL) == [None]
        assert await store.release([claim]) == [False]

    @pytest.mark.proves("I17", "I18")
    async def test_a_run_is_terminated_whoever_holds_it(self, store: Store) -> None:
        """`force` ends a run under the hands of a live owner, who cannot write any more."""
        await begin(store, "r")
        claim = await take(store, "r")
        terminate = Commit(run_id="r", force=True, change=Change(status=Status.CANCELLED))
        assert (await done(store, terminate)).token > claim.token
        late = Commit(run_id="r", token=claim.token, events=events("r", 1))
        await refused(store, late, RunClosed)

    @pytest.mark.proves("I5", "I17")
    async def test_force_takes_the_claim_away(self, store: Store) -> None:
        """After a forced commit the old owner is fenced and the run can be claimed at once."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        forced = await done(store, Commit(run_id="r", force=True, change=Change(error="moved")))
        refusal = await refused(
            store, Commit(run_id="r", token=claim.token, events=events("r", 1)), Fenced
        )
        assert (refusal.token, refusal.current) == (claim.token, forced.token)
        assert await store.renew([claim], TTL) == [None]
        assert (await take(store, "r", owner="other")).token > forced.token

    @needs(Capability.INBOX)
    @pytest.mark.proves("I5", "I17")
    async def test_force_takes_the_claim_for_another(self, store: Store) -> None:
        """With `hold` a forced commit claims the run: the old owner is fenced, and no worker gets it for
        that time, whatever is sent to it."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await done(store, Commit(run_id="r", force=True, hold=ClaimOnCreate("other", TTL)))
        await refused(store, Commit(run_id="r", token=claim.token, events=events("r", 1)), Fenced)
        await store.send([signal("r")])
        assert await store.claim_runs("w", TTL, run_ids=["r"]) == []
        await self.advance(store, 2 * TTL)
        await take(store, "r")

    @needs(Capability.TASKS, Capability.TIMERS)
    @pytest.mark.proves("I12", "I15", "I18")
    async def test_the_end_drops_tasks_and_unfired_timers(self, store: Store) -> None:
        """Nothing of an ended run is left to be done; the timers that fired stay as facts."""
        await begin(store, "r")
        now = await store.now()
        setup = Commit(
            run_id="r",
            tasks=(Task(id="a", run_id="r"), Task(id="b", run_id="r")),
            timers=tuple(Timer(run_id="r", id=id, fire_at=now) for id in ("fired", "open")),
        )
        await done(store, setup)
        assert await store.claim_task("r", "a", "worker") is not None
        assert await store.mark_timer_fired("r", "fired")
        await finish(store, "r")
        assert await store.find_available_tasks(limit=10) == []
        assert await store.claim_task("r", "b", "worker") is None
        assert [timer.id for timer in await store.timers("r")] == ["fired"]
        assert await store.due_timers(now=now + timedelta(days=1)) == []

    @needs(Capability.TASKS, Capability.TIMERS)
    @pytest.mark.proves("I12", "I18")
    async def test_a_commit_that_ends_a_run_leaves_no_work_of_its_own(self, store: Store) -> None:
        """Tasks and timers in the very commit that ends the run are dropped with the rest."""
        await begin(store, "r")
        now = await store.now()
        last = Commit(
            run_id="r",
            change=Change(status=Status.COMPLETED),
            tasks=(Task(id="t", run_id="r"),),
            timers=(Timer(run_id="r", id="t", fire_at=now),),
        )
        await done(store, last)
        assert await store.find_available_tasks(limit=10) == []
        assert await store.timers("r") == []

    @needs(Capability.ENTRIES, Capability.ACTIVITIES, Capability.SNAPSHOTS, Capability.FACTS)
    @pytest.mark.proves("I18", "D-08")
    async def test_notes_may_be_added_after_the_end(self, store: Store) -> None:
        """Audit lines, activity states, snapshots and facts are no part of what has ended."""
        await begin(store, "r")
        await finish(store, "r")
        fact = Fact.of(b"late")
        late = Commit(
            run_id="r",
            entries=(Entry(run_id="r", step_id="s", action="reviewed"),),
            activities=(Activity(id="a", run_id="r"),),
            snapshot=Snapshot(run_id="r", sequence=0, data=b"s"),
            facts=(fact,),
        )
        await done(store, late)
        assert len(await store.entries("r")) == 1
        assert await store.load_fact(fact.hash, root="r") == b"late"
        assert (await store.get("r")).status is Status.COMPLETED

    @pytest.mark.proves("I18", "D-06")
    async def test_saving_over_an_ended_run_is_refused(self, store: Store) -> None:
        """`save` raises `RunClosed` for a run that has ended."""
        await begin(store, "r")
        await finish(store, "r")
        with pytest.raises(RunClosed):
            await store.save(Run(id="r", status=Status.RUNNING))
