"""What can be done to schedules from outside: stored, seen by all workers, on record."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from outlast.client import Client, RunHandle
from outlast.client.moved_runs import send_here
from outlast.client.results import answered
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.runner.new_run import NewRun
from outlast.errors import (
    Conflict,
    Fenced,
    InvalidValue,
    NotFound,
    RunExists,
    TryAgain,
    WorkflowMisuse,
)
from outlast.model.commit import Creation
from outlast.model.ids import SCHEDULE_OF, new_id
from outlast.model.inbox import Item
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.ports.capabilities import Capability
from outlast.ports.codec import Codec
from outlast.ports.derived import accepted
from outlast.ports.store import Store
from outlast.schedules.schedule import Plan, Schedule, check_schedule_name
from outlast.schedules.schedule_workflow import KEPT_CHANGES, Change, ChangeRequest, State
from outlast.schedules.timing import firings, jitter, stamp

T = TypeVar("T")
KIND = {"outlast.kind": "schedule"}
PATIENCE = 30.0
UNKNOWN_WORKER_S = 1.0
"""Seconds to wait for an answer while no worker is listed: one may have started just now."""
PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class ScheduleState(Struct, frozen=True, kw_only=True):
    """A schedule and where it stands."""

    plan: Plan
    status: str  # active, paused, or how its run has ended
    next: datetime | None
    last: str
    fired: int
    skipped: int
    missed: int
    changes: list[Change]

    @property
    def name(self) -> str:
        """What it is called."""
        return self.plan.name


class Schedules:
    """The schedules of a store: ``app.schedules``."""

    def __init__(
        self,
        client: Client,
        store: Store,
        codec: Codec,
        keepers: Mapping[str, WorkflowDefinition],
    ) -> None:
        self._client = client
        self._opened = store
        self._codec = codec
        self._keepers = keepers  # by the name of the workflow that they start

    # -- changing -----------------------------------------------------------------------------

    async def create(self, schedule: Schedule) -> None:
        """Keep a new schedule; `RunExists` if there is one of that name that has not ended."""
        plan = schedule.plan(self._codec)
        try:
            await self._start(plan, Creation.NEW)
        except RunExists:
            run = await self._client.get(run_id_of(plan.name))
            if not run.status.terminal:
                raise
            await self._start(plan, Creation.REPLACE)

    async def change(self, schedule: Schedule, *, by: str = "", note: str = "") -> bool:
        """Let a schedule be another one from now on, paused or not as it is; whether it was."""
        plan = schedule.plan(self._codec)
        run = await self._kept(schedule.name)
        if run.workflow != _keeper_name(plan):
            await self._begin_anew(run, plan, Change(await self._store.now(), "changed", by, note))
            return True
        return await self._ask(
            schedule.name, "change", ChangeRequest(plan=plan, by=by, note=note), bool
        )

    async def declare(self, schedule: Schedule) -> None:
        """Create it if it is not there, and change it if it is another one."""
        plan = schedule.plan(self._codec)
        try:
            await self._start(plan, Creation.NEW)
        except RunExists:
            run = await self._client.get(run_id_of(plan.name))
            is_same = self._plan(run) == plan
            if is_same and (not run.status.terminal or run.status is Status.COMPLETED):
                return
            if run.status.terminal or run.workflow != _keeper_name(plan):
                what = "revived" if is_same else "changed"
                await self._begin_anew(run, plan, Change(await self._store.now(), what, "code"))
            else:
                await self._tell(plan.name, "change", ChangeRequest(plan=plan, by="code"))

    async def pause(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Fire no more until it is resumed; whether it was not paused before. It is durable when this
        returns, also while no worker is there to keep the schedule."""
        return await self._switch(name, ChangeRequest(paused=True, by=by, note=note))

    async def resume(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Fire again, from now on; whether it was paused, or its run had been ended."""
        run = await self._kept(name)
        if run.status.terminal and run.status is not Status.COMPLETED:
            change = Change(await self._store.now(), "revived", by, note)
            await self._begin_anew(run, self._plan(run), change, paused=False)
            return True
        return await self._switch(name, ChangeRequest(paused=False, by=by, note=note))

    async def trigger(self, name: str, *, by: str = "", note: str = "") -> RunHandle[Any]:
        """Start a run now, whatever else is running or paused."""
        now = await self._store.now()
        run_id = f"{check_schedule_name(name)}@{stamp(now.replace(microsecond=0))}-{new_id()[-6:]}"
        wish = ChangeRequest(run_id=run_id, by=by, note=note)
        await self._ask(name, "trigger", wish, str, dedup=run_id)
        return RunHandle(self._client, run_id)

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, by: str = "", note: str = ""
    ) -> list[str]:
        """Start a run for each firing from `start` up to, not including, `end`; their ids. Runs
        that are there already are left alone."""
        for moment in (start, end):
            if moment.tzinfo is None:
                raise InvalidValue(f"{moment.isoformat()} has no time zone: give it one")
        if not start < end:
            raise InvalidValue("the time to backfill ends before it begins: use start < end")
        wish = ChangeRequest(start=start.astimezone(UTC), end=end.astimezone(UTC), by=by, note=note)
        return await self._ask(name, "backfill", wish, list[str])

    async def delete(self, name: str) -> bool:
        """Remove a schedule, and what is known of it; whether it was there. Its runs stay."""
        return await self._client.delete(run_id_of(check_schedule_name(name)), force=True)

    # -- reading ------------------------------------------------------------------------------

    async def get(self, name: str) -> ScheduleState:
        """A schedule and where it stands; `NotFound` if there is none."""
        run = await self._kept(name)
        return self._state(run, await self._switched(run))

    async def list(self) -> list[ScheduleState]:
        """All schedules, by name."""
        found = [self._state(run, await self._switched(run)) async for run in self._runs()]
        return sorted(found, key=lambda one: one.name)

    # -- how ----------------------------------------------------------------------------------

    @property
    def _store(self) -> Store:
        return self._opened

    def _runs(self) -> AsyncIterator[Run]:
        return self._store.find_all(RunQuery(attributes=dict(KIND)))

    async def _kept(self, name: str) -> Run:
        try:
            return await self._client.get(run_id_of(check_schedule_name(name)))
        except NotFound:
            raise NotFound("schedule", name) from None

    async def _begin_anew(
        self, run: Run, plan: Plan, change: Change, *, paused: bool | None = None
    ) -> None:
        """Let another run keep a schedule, from now on, paused or not as it is. Somebody who does the
        same at once has done it."""
        state = self._where(run)
        state.cursor = max(state.cursor, change.at)
        state.paused = await self._switched(run) if paused is None else paused
        state.changes = [*state.changes, change][-KEPT_CHANGES:]
        with suppress(Fenced, Conflict, NotFound):
            await self._start(plan, Creation.REPLACE, state, uid=run.uid)

    async def _start(
        self, plan: Plan, creation: Creation, state: State | None = None, uid: str | None = None
    ) -> None:
        keeper = self._keepers.get(plan.workflow)
        if keeper is None:
            raise WorkflowMisuse(
                f"workflow {plan.workflow!r} is not registered: App(…, workflows=[{plan.workflow}])"
            )
        given = (plan,) if state is None else (plan, state)
        input, _, _ = keeper.signature.encode_call(self._codec, given, {})
        run_id = run_id_of(plan.name)
        new = NewRun(
            id=run_id,
            workflow=keeper.name,
            definition=keeper,
            input=input,
            creation=creation,
            attributes=dict(KIND),
        )
        commit = msgspec.structs.replace(new.commit(), uid=uid)
        for pause in PAUSES:
            with suppress(TryAgain):  # others may be about to do the same
                accepted((await self._store.commit([commit]))[0])
                return
            await self._store.clock.sleep(pause)
        accepted((await self._store.commit([commit]))[0])

    async def _ask(
        self, name: str, what: str, wish: ChangeRequest, type: type[T], *, dedup: str | None = None
    ) -> T:
        run_id = run_id_of(check_schedule_name(name))
        try:
            answer: T = await self._client.update(
                run_id, what, wish, type, dedup=dedup, timeout=PATIENCE
            )
            return answer
        except NotFound:
            raise NotFound("schedule", name) from None

    async def _switch(self, name: str, wish: ChangeRequest) -> bool:
        """Pause or resume; whether that changes anything. A worker that keeps the schedule answers.
        Without one the request waits in the inbox of its run, before any firing of a later worker."""
        run = await self._kept(name)
        if run.status.terminal:
            return await self._ask(name, "switch", wish, bool)
        changes = await self._switched(run) is not wish.paused
        id = await self._tell(name, "switch", wish)
        patience = PATIENCE if await self._is_kept_now(run) else UNKNOWN_WORKER_S
        try:
            answer = await answered(
                self._store, run, id, "switch", after=run.sequence, timeout=patience
            )
        except TimeoutError:
            return changes
        return answer.output is not None and bytes(answer.output) == b"true"

    async def _is_kept_now(self, run: Run) -> bool:
        """Whether a worker that is alive has the code that keeps a schedule."""
        if Capability.WORKERS not in self._store.capabilities:
            return True
        target, now = run.workflow.removeprefix(SCHEDULE_OF), await self._store.now()
        workers = await self._store.workers()
        return any(one.is_alive(now) and target in one.workflows for one in workers)

    async def _switched(self, run: Run) -> bool:
        """Whether a schedule is paused, once its run has read what waits in its inbox."""
        paused = self._where(run).paused
        for item in await self._store.inbox(run.id):
            if item.kind == "update" and item.name == "switch":
                wish = self._codec.decode(
                    item.data or Raw(b"{}"), ChangeRequest, where="update 'switch'"
                )
                paused = wish.paused
        return paused

    async def _tell(self, name: str, what: str, wish: ChangeRequest) -> str:
        """Send an update; its id."""
        data = self._codec.encode(wish, ChangeRequest, where=f"update {what!r}")
        item = Item(kind="update", name=what, id=new_id(), data=data)
        await send_here(self._store, run_id_of(name), item)
        return item.id

    def _plan(self, run: Run) -> Plan:
        published = run.ctx.get("plan")
        if published is None:  # nobody has begun to keep it
            published = msgspec.json.decode(run.input or b"{}", type=dict[str, Raw])["plan"]
        plan: Plan = self._codec.decode(published, Plan, where="plan of a schedule")
        return plan

    def _where(self, run: Run) -> State:
        published = run.ctx.get("state")
        if published is None:  # nobody has begun to keep it
            published = msgspec.json.decode(run.input or b"{}", type=dict[str, Raw]).get("state")
        if published is None or bytes(published) == b"null":
            return State(cursor=run.created_at)
        state: State = self._codec.decode(published, State, where="state of a schedule")
        return state

    def _state(self, run: Run, paused: bool) -> ScheduleState:
        plan, state = self._plan(run), self._where(run)
        status = "paused" if paused else "active"
        over = run.status.terminal
        coming = None if over or paused else next(firings(plan, state.cursor), None)
        return ScheduleState(
            plan=plan,
            status=str(run.status) if over else status,
            next=None if coming is None else coming + jitter(plan, coming),
            last=state.last,
            fired=state.fired,
            skipped=state.skipped,
            missed=state.missed,
            changes=state.changes,
        )


def _keeper_name(plan: Plan) -> str:
    return f"{SCHEDULE_OF}{plan.workflow}"


def run_id_of(name: str) -> str:
    """The run that keeps a schedule."""
    return f"schedule@{name}"
