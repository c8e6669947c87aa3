"""The workflow that a schedule is a run of.

It sleeps until the next firing, starts a run for it, and sleeps again; what people want of it comes
as updates. Which firings have come, what to do if the run before is not over: decided here, by
code that replays. What looks at other runs or begins them are steps, and those may be repeated: the
id of a run says which firing it is, and there is one run of an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw, Struct

from outlast import context, decorators
from outlast.client import Client
from outlast.decorators import Workflow
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.definitions.retry import Retry
from outlast.engine.runner.new_run import NewRun
from outlast.errors import InvalidValue, OutlastError, Refused, RunExists, TryAgain
from outlast.model.ids import SCHEDULE_OF
from outlast.ports.derived import accepted
from outlast.ports.store import Store
from outlast.schedules.schedule import Plan
from outlast.schedules.timing import due, firings, jitter, stamp

TURNS = 50
"""After so many the run continues as new: a history need not be as long as a schedule is old."""

LATE = timedelta(minutes=1)
"""A firing that is later than this was missed."""

SHORTEST_LOOK, LONGEST_LOOK = 0.5, 30.0
MOST_BACKFILLED = 1000
TIMES = ("cron", "every", "timezone", "jitter", "starts_at", "ends_at")
"""What of a plan says when it fires."""
AT_ONCE = 100
KEPT_CHANGES = 100
PATIENT = Retry(attempts=10**9, delay=1.0, max_delay=60.0)


class Change(Struct, frozen=True):
    """An audit line: who did what to a schedule, and when."""

    at: datetime
    what: str
    by: str = ""
    note: str = ""


class State(Struct, kw_only=True):
    """Where a schedule stands."""

    cursor: datetime  # up to here, firings are dealt with
    paused: bool = False
    last: str = ""  # the run of the last firing
    waiting: datetime | None = None  # a firing that waits until that run has ended
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    changes: list[Change] = []


class ChangeRequest(Struct, frozen=True, kw_only=True):
    """What somebody wants of a schedule."""

    by: str = ""
    note: str = ""
    plan: Plan | None = None
    paused: bool = False
    run_id: str = ""
    start: datetime | None = None
    end: datetime | None = None


def keeper_of(target: WorkflowDefinition, client: Client, store: Store) -> Workflow[..., Any]:
    """The workflow that keeps schedules of `target`. Only who has the code of that has this."""

    @decorators.step(name="start", retry=PATIENT)
    async def start(plan: Plan, run_ids: list[str]) -> None:
        """Begin runs for whoever has their code; those that are there already are left alone."""
        if plan.queue is not None:
            await client.expect_queued()
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
        for first in range(0, len(commits), AT_ONCE):
            outcomes = await store.commit(commits[first : first + AT_ONCE])
            for outcome in outcomes:
                if not isinstance(outcome, RunExists):
                    accepted(outcome)

    @decorators.step(name="is over", retry=PATIENT)
    async def is_over(run_id: str) -> bool:
        """Whether a run has ended. Nobody waits for that here: a step that waits keeps its place in the
        worker, and the run that it waits for may need that."""
        try:
            run = await client.get(run_id)
        except Refused:
            return True  # it is gone, or elsewhere
        return run.status.terminal

    @decorators.step(name="cancel", retry=PATIENT)
    async def cancel(run_id: str, schedule: str) -> None:
        """Ask a run to stop, if it is still there."""
        try:
            await client.cancel(run_id, f"the next run of schedule {schedule} is due")
        except TryAgain:
            raise
        except OutlastError:
            pass

    @decorators.workflow(name=f"{SCHEDULE_OF}{target.name}")
    async def keep(plan: Plan, state: State | None = None) -> None:
        state = state or State(cursor=context.now())
        changed = asyncio.Event()

        def note(what: str, wish: ChangeRequest) -> None:
            state.changes.append(Change(context.now(), what, wish.by, wish.note))
            del state.changes[:-KEPT_CHANGES]
            changed.set()

        @context.on_update
        async def change(wish: ChangeRequest) -> bool:
            nonlocal plan
            if wish.plan is None or wish.plan == plan:
                return False
            if any(getattr(wish.plan, time) != getattr(plan, time) for time in TIMES):
                # Other times are from now on; at the same times, what was missed is made up.
                state.cursor = max(state.cursor, context.now())
            plan = wish.plan
            note("changed", wish)
            return True

        @context.on_update
        async def switch(wish: ChangeRequest) -> bool:
            was, state.paused = state.paused, wish.paused
            if was == wish.paused:
                return False
            if was:
                # What fell into the pause was not wanted.
                state.cursor = max(state.cursor, context.now())
            note("resumed" if was else "paused", wish)
            return True

        @context.on_update
        async def trigger(wish: ChangeRequest) -> str:
            note(f"triggered {wish.run_id}", wish)
            await start(plan, [wish.run_id])
            return wish.run_id

        @context.on_update
        async def backfill(wish: ChangeRequest) -> list[str]:
            run_ids = [run_id_of(plan, one) for one in wanted_between(plan, wish)]
            note(f"backfilled {len(run_ids)}", wish)
            await start(plan, run_ids)
            return run_ids

        def may_fire() -> bool:
            return not state.paused  # since somebody may have paused it meanwhile

        async def fire(moments: Sequence[datetime]) -> None:
            if moments:
                run_ids = [run_id_of(plan, moment) for moment in moments]
                await start(plan, run_ids)
                state.last = run_ids[-1]
                state.fired += len(run_ids)

        async def fire_unless_busy(moment: datetime) -> None:
            busy = state.waiting is not None or (state.last != "" and not await is_over(state.last))
            if not busy:
                await fire([moment])
            elif plan.overlap == "cancel":
                state.skipped += state.waiting is not None
                state.waiting = moment
                await cancel(state.last, plan.name)
            elif plan.overlap == "wait" and state.waiting is None:
                state.waiting = moment
            else:
                state.skipped += 1

        for _ in range(TURNS):
            changed.clear()
            if not state.paused:
                moments = catch_up(plan, state, context.now())
                if plan.overlap == "allow":
                    await fire(moments)
                else:
                    for moment in moments:
                        await fire_unless_busy(moment)
            pause_for = seconds_to_next(plan, state, context.now())
            context.publish(plan=plan, state=state)
            if state.waiting is not None and not state.paused:
                if await is_over(state.last) and may_fire() and state.waiting is not None:
                    moment, state.waiting = state.waiting, None
                    await fire([moment])
                    continue
                look = seconds_to_look(state.waiting, context.now())
                pause_for = look if pause_for is None else min(look, pause_for)
            if pause_for is None and not state.paused:
                return
            try:
                async with asyncio.timeout(None if state.paused else pause_for):
                    await changed.wait()
            except TimeoutError:
                pass
        context.continue_as_new(keep(plan, state))

    return keep


# -- decisions --------------------------------------------------------------------------------


def catch_up(plan: Plan, state: State, now: datetime) -> list[datetime]:
    """The firings to make now, oldest first. What has come is dealt with by that."""
    moments, before = due(plan, state.cursor, now, plan.most)
    if not moments:
        return []
    state.cursor = moments[-1]
    if plan.catch_up == "none" and now - moments[-1] - jitter(plan, moments[-1]) > LATE:
        before, moments = before + len(moments), []
    state.missed += before
    return moments


def seconds_to_next(plan: Plan, state: State, now: datetime) -> float | None:
    """Until the next firing; None if there is none any more."""
    moment = next(firings(plan, state.cursor), None)
    if moment is None:
        return None
    return max((moment + jitter(plan, moment) - now).total_seconds(), 0.0)


def seconds_to_look(waiting: datetime | None, now: datetime) -> float:
    """Until it is worth while to see again whether the run before is over: the longer it takes, the
    rarer, so that a firing waits for a tenth longer at most, and a history stays short."""
    so_far = 0.0 if waiting is None else (now - waiting).total_seconds()
    return min(max(so_far / 10, SHORTEST_LOOK), LONGEST_LOOK)


def wanted_between(plan: Plan, wish: ChangeRequest) -> list[datetime]:
    """The firings of a time that is to be made up: from `start` up to, not including, `end`."""
    assert wish.start is not None
    assert wish.end is not None
    just_before = timedelta(microseconds=1)
    moments: list[datetime] = []
    for moment in firings(plan, wish.start - just_before, wish.end - just_before):
        moments.append(moment)
        if len(moments) > MOST_BACKFILLED:
            raise InvalidValue(
                f"more than {MOST_BACKFILLED} firings: backfill a shorter time, several times"
            )
    return moments


def run_id_of(plan: Plan, moment: datetime) -> str:
    """The run of a firing."""
    return f"{plan.name}@{stamp(moment)}"
