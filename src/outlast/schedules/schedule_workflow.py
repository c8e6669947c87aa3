"""The built-in workflow behind each schedule.

It sleeps until the next firing, starts a run for it, and sleeps again; `Schedules` changes it by updates.
Workflow code decides which firings are due and what to do about overlap, so these decisions replay. Steps
read and start other runs. They are idempotent: the id of a run names its firing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct

from outlast import context, decorators
from outlast.client.backend import Backend
from outlast.client.handle import RunHandle
from outlast.decorators import Workflow
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.definitions.retry import Retry
from outlast.engine.replay.commit_builder import NewRun
from outlast.errors import InvalidValue, OutlastError, Refused, RunExists, TryAgain
from outlast.model.ids import SCHEDULE_OF
from outlast.ports.custom_engine import accepted
from outlast.ports.store import Store
from outlast.schedules.schedule import ScheduleSpec
from outlast.schedules.timing import due, firings, jitter, stamp

MAX_TURNS = 50
"""After this many turns the run continues as new, so that its history stays short."""

MISSED_AFTER = timedelta(minutes=1)
"""A firing later than this counts as missed."""

MIN_POLL_S, MAX_POLL_S = 0.5, 30.0
MAX_BACKFILL = 1000
TIMING_FIELDS = ("cron", "every", "timezone", "jitter", "starts_at", "ends_at")
"""The fields of a specification that decide when it fires."""
BATCH_SIZE = 100
MAX_CHANGES = 100
RETRY_FOREVER = Retry(attempts=10**9, delay=1.0, max_delay=60.0)


class Change(Struct, frozen=True):
    """An audit line: who did what to a schedule, and when."""

    at: datetime
    what: str
    by: str = ""
    note: str = ""


class State(Struct, kw_only=True):
    """The recorded state of a schedule."""

    cursor: datetime  # firings up to here are handled
    paused: bool = False
    last: str = ""  # the run of the last firing
    waiting: datetime | None = None  # a firing that waits until that run has ended
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    changes: list[Change] = []


class ChangeRequest(Struct, frozen=True, kw_only=True):
    """An update that `Schedules` sends to the run of a schedule."""

    by: str = ""
    note: str = ""
    plan: ScheduleSpec | None = None
    paused: bool = False
    run_id: str = ""
    start: datetime | None = None
    end: datetime | None = None


def schedule_workflow(
    target: WorkflowDefinition, backend: Backend, store: Store
) -> Workflow[..., Any]:
    """The workflow of all schedules that start `target`. A process that registers `target` has it too."""

    @decorators.step(name="start", retry=RETRY_FOREVER)
    async def start(plan: ScheduleSpec, run_ids: list[str]) -> None:
        """Start runs. Runs that exist already are left alone."""
        if plan.queue is not None:
            await backend.expect_queued()
        commits = [
            NewRun(
                id=run_id,
                workflow=target.name,
                definition=target,
                input=Raw(plan.input.encode()),
                attributes={"schedule": plan.name},
                queue=plan.queue,
            ).commit()
            for run_id in run_ids
        ]
        for first in range(0, len(commits), BATCH_SIZE):
            outcomes = await store.commit(commits[first : first + BATCH_SIZE])
            for outcome in outcomes:
                if not isinstance(outcome, RunExists):
                    accepted(outcome)

    @decorators.step(name="is over", retry=RETRY_FOREVER)
    async def is_over(run_id: str) -> bool:
        """Whether a run has ended. The step polls instead of waiting: a waiting step would occupy a slot of the
        worker that the run itself may need."""
        try:
            run = await backend.record(run_id)
        except Refused:
            return True  # deleted, or moved to another store
        return run.status.terminal

    @decorators.step(name="cancel", retry=RETRY_FOREVER)
    async def cancel(run_id: str, schedule: str) -> None:
        """Cancel a run, if it still exists."""
        try:
            await RunHandle[Any](backend, run_id).cancel(
                f"the next run of schedule {schedule} is due"
            )
        except TryAgain:
            raise
        except OutlastError:
            pass

    @decorators.workflow(name=f"{SCHEDULE_OF}{target.name}")
    async def keep(plan: ScheduleSpec, state: State | None = None) -> None:
        # `plan` and `state` are the recorded names of the input, and cannot change.
        spec = plan
        state = state or State(cursor=context.now())
        changed = asyncio.Event()

        def note(what: str, request: ChangeRequest) -> None:
            state.changes.append(Change(context.now(), what, request.by, request.note))
            del state.changes[:-MAX_CHANGES]
            changed.set()

        @context.on_update
        async def change(request: ChangeRequest) -> bool:
            nonlocal spec
            if request.plan is None or request.plan == spec:
                return False
            if any(getattr(request.plan, time) != getattr(spec, time) for time in TIMING_FIELDS):
                # New times count from now on; with unchanged times, missed firings are made up.
                state.cursor = max(state.cursor, context.now())
            spec = request.plan
            note("changed", request)
            return True

        @context.on_update
        async def switch(request: ChangeRequest) -> bool:
            was, state.paused = state.paused, request.paused
            if was == request.paused:
                return False
            if was:
                # Firings during the pause are not made up.
                state.cursor = max(state.cursor, context.now())
            note("resumed" if was else "paused", request)
            return True

        @context.on_update
        async def trigger(request: ChangeRequest) -> str:
            note(f"triggered {request.run_id}", request)
            await start(spec, [request.run_id])
            return request.run_id

        @context.on_update
        async def backfill(request: ChangeRequest) -> list[str]:
            run_ids = [run_id_of(spec, one) for one in backfill_firings(spec, request)]
            note(f"backfilled {len(run_ids)}", request)
            await start(spec, run_ids)
            return run_ids

        def may_fire() -> bool:
            return not state.paused  # an update may have paused it during the last await

        async def fire(moments: Sequence[datetime]) -> None:
            if moments:
                run_ids = [run_id_of(spec, moment) for moment in moments]
                await start(spec, run_ids)
                state.last = run_ids[-1]
                state.fired += len(run_ids)

        async def fire_unless_busy(moment: datetime) -> None:
            busy = state.waiting is not None or (state.last != "" and not await is_over(state.last))
            if not busy:
                await fire([moment])
            elif spec.overlap == "cancel":
                state.skipped += state.waiting is not None
                state.waiting = moment
                await cancel(state.last, spec.name)
            elif spec.overlap == "wait" and state.waiting is None:
                state.waiting = moment
            else:
                state.skipped += 1

        for _ in range(MAX_TURNS):
            changed.clear()
            if not state.paused:
                moments = catch_up(spec, state, context.now())
                if spec.overlap == "allow":
                    await fire(moments)
                else:
                    for moment in moments:
                        await fire_unless_busy(moment)
            pause_for = seconds_to_next(spec, state, context.now())
            context.publish(plan=spec, state=state)
            if state.waiting is not None and not state.paused:
                if await is_over(state.last) and may_fire() and state.waiting is not None:
                    moment, state.waiting = state.waiting, None
                    await fire([moment])
                    continue
                poll = seconds_to_poll(state.waiting, context.now())
                pause_for = poll if pause_for is None else min(poll, pause_for)
            if pause_for is None and not state.paused:
                return
            try:
                async with asyncio.timeout(None if state.paused else pause_for):
                    await changed.wait()
            except TimeoutError:
                pass
        context.continue_as_new(keep(spec, state))

    return keep


# -- decisions --------------------------------------------------------------------------------


def catch_up(spec: ScheduleSpec, state: State, now: datetime) -> list[datetime]:
    """The firings to start now, oldest first. Advances the cursor past them."""
    moments, before = due(spec, state.cursor, now, spec.max_made_up)
    if not moments:
        return []
    state.cursor = moments[-1]
    if spec.catch_up == "none" and now - moments[-1] - jitter(spec, moments[-1]) > MISSED_AFTER:
        before, moments = before + len(moments), []
    state.missed += before
    return moments


def seconds_to_next(spec: ScheduleSpec, state: State, now: datetime) -> float | None:
    """Seconds until the next firing; None if there is none."""
    moment = next(firings(spec, state.cursor), None)
    if moment is None:
        return None
    return max((moment + jitter(spec, moment) - now).total_seconds(), 0.0)


def seconds_to_poll(waiting: datetime | None, now: datetime) -> float:
    """Seconds until the next check whether the previous run has ended. The pause grows with the wait, so that
    a firing is at most a tenth later, and the history stays short."""
    so_far = 0.0 if waiting is None else (now - waiting).total_seconds()
    return min(max(so_far / 10, MIN_POLL_S), MAX_POLL_S)


def backfill_firings(spec: ScheduleSpec, request: ChangeRequest) -> list[datetime]:
    """The firings to backfill: from `start` up to, not including, `end`."""
    assert request.start is not None
    assert request.end is not None
    just_before = timedelta(microseconds=1)
    moments: list[datetime] = []
    for moment in firings(spec, request.start - just_before, request.end - just_before):
        moments.append(moment)
        if len(moments) > MAX_BACKFILL:
            raise InvalidValue(
                f"more than {MAX_BACKFILL} firings: backfill a shorter time, several times"
            )
    return moments


def run_id_of(spec: ScheduleSpec, moment: datetime) -> str:
    """The id of the run of a firing."""
    return f"{spec.name}@{stamp(moment)}"
