"""Schedules: create, change, pause, trigger and read the schedules of a store. Every change is durable and
recorded in the history of the schedule's run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from outlast.client.backend import Backend
from outlast.client.handle import RunHandle
from outlast.client.moved_runs import send_here
from outlast.client.results import answered
from outlast.engine.replay.commit_builder import NewRun
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
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.model.run_contents import Item, ItemKind
from outlast.ports.custom_engine import accepted
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.schedules.schedule import Schedule, ScheduleSpec, check_schedule_name
from outlast.schedules.schedule_workflow import MAX_CHANGES, Change, ChangeRequest, State
from outlast.schedules.timing import firings, jitter, stamp

T = TypeVar("T")
KIND = {"outlast.kind": "schedule"}
ANSWER_TIMEOUT_S = 30.0
NO_WORKER_TIMEOUT_S = 1.0
"""How long to wait for an answer while no worker is listed: one may have just started."""
RETRY_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class ScheduleState(Struct, frozen=True, kw_only=True):
    """A schedule and its current state."""

    spec: ScheduleSpec
    status: str  # active, paused, or how its run has ended
    next: datetime | None
    last: str
    fired: int
    skipped: int
    missed: int
    changes: list[Change]

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self.spec.name


class Schedules:
    """The schedules of a store: ``client.schedules``."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._codec = backend.codec

    @property
    def _store(self) -> Store:
        return self._backend.store

    # -- changing -----------------------------------------------------------------------------

    async def create(self, schedule: Schedule) -> None:
        """Create a schedule; `RunExists` if one of that name exists and has not ended."""
        spec = schedule.spec(self._codec)
        try:
            await self._start_run(spec, Creation.NEW)
        except RunExists:
            run = await self._backend.record(run_id_of(spec.name))
            if not run.status.terminal:
                raise
            await self._start_run(spec, Creation.REPLACE)

    async def change(self, schedule: Schedule, *, by: str = "", note: str = "") -> bool:
        """Replace the specification of a schedule from now on; it stays paused or active. Returns whether it
        differs."""
        spec = schedule.spec(self._codec)
        run = await self._run_of(schedule.name)
        if run.workflow != _workflow_name(spec):
            await self._restart_run(run, spec, Change(await self._store.now(), "changed", by, note))
            return True
        return await self._ask(
            schedule.name, "change", ChangeRequest(plan=spec, by=by, note=note), bool
        )

    async def declare(self, schedule: Schedule) -> None:
        """Create the schedule if it does not exist, and change it if its specification differs."""
        spec = schedule.spec(self._codec)
        try:
            await self._start_run(spec, Creation.NEW)
        except RunExists:
            run = await self._backend.record(run_id_of(spec.name))
            is_same = self._spec(run) == spec
            if is_same and (not run.status.terminal or run.status is Status.COMPLETED):
                return
            if run.status.terminal or run.workflow != _workflow_name(spec):
                what = "revived" if is_same else "changed"
                await self._restart_run(run, spec, Change(await self._store.now(), what, "code"))
            else:
                await self._send(spec.name, "change", ChangeRequest(plan=spec, by="code"))

    async def pause(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Stop firing until it is resumed; returns whether it was active. The pause is durable on return, also if
        no worker runs."""
        return await self._switch(name, ChangeRequest(paused=True, by=by, note=note))

    async def resume(self, name: str, *, by: str = "", note: str = "") -> bool:
        """Fire again from now on; returns whether it was paused, or its run had ended."""
        run = await self._run_of(name)
        if run.status.terminal and run.status is not Status.COMPLETED:
            change = Change(await self._store.now(), "revived", by, note)
            await self._restart_run(run, self._spec(run), change, paused=False)
            return True
        return await self._switch(name, ChangeRequest(paused=False, by=by, note=note))

    async def trigger(self, name: str, *, by: str = "", note: str = "") -> RunHandle[Any]:
        """Start a run now, regardless of overlap and pause."""
        now = await self._store.now()
        run_id = f"{check_schedule_name(name)}@{stamp(now.replace(microsecond=0))}-{new_id()[-6:]}"
        request = ChangeRequest(run_id=run_id, by=by, note=note)
        await self._ask(name, "trigger", request, str, dedup=run_id)
        return RunHandle(self._backend, run_id)

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, by: str = "", note: str = ""
    ) -> list[str]:
        """Start a run for each firing from `start` up to, not including, `end`; returns their ids. Idempotent:
        runs that exist are left alone."""
        for moment in (start, end):
            if moment.tzinfo is None:
                raise InvalidValue(
                    f"{moment.isoformat()} has no time zone: add one, such as tzinfo=UTC"
                )
        if not start < end:
            raise InvalidValue("backfill needs start < end")
        request = ChangeRequest(
            start=start.astimezone(UTC), end=end.astimezone(UTC), by=by, note=note
        )
        return await self._ask(name, "backfill", request, list[str])

    async def delete(self, name: str) -> bool:
        """Remove a schedule and its history; returns whether it existed. The runs that it started stay."""
        return await self._handle(name).delete(force=True)

    # -- reading ------------------------------------------------------------------------------

    async def get(self, name: str) -> ScheduleState:
        """A schedule and its current state; `NotFound` if it does not exist."""
        run = await self._run_of(name)
        return self._view(run, await self._is_paused(run))

    async def list(self) -> list[ScheduleState]:
        """All schedules, by name."""
        found = [self._view(run, await self._is_paused(run)) async for run in self._runs()]
        return sorted(found, key=lambda one: one.name)

    # -- runs ---------------------------------------------------------------------------------

    def _handle(self, name: str) -> RunHandle[Any]:
        return RunHandle(self._backend, run_id_of(check_schedule_name(name)))

    def _runs(self) -> AsyncIterator[Run]:
        return self._store.find_all(RunQuery(attributes=dict(KIND)))

    async def _run_of(self, name: str) -> Run:
        try:
            return await self._backend.record(run_id_of(check_schedule_name(name)))
        except NotFound:
            raise NotFound("schedule", name) from None

    async def _restart_run(
        self, run: Run, spec: ScheduleSpec, change: Change, *, paused: bool | None = None
    ) -> None:
        """Replace the run of a schedule by a new life, from now on. If another process does the same
        concurrently, the first one wins."""
        state = self._recorded_state(run)
        state.cursor = max(state.cursor, change.at)
        state.paused = await self._is_paused(run) if paused is None else paused
        state.changes = [*state.changes, change][-MAX_CHANGES:]
        with suppress(Fenced, Conflict, NotFound):
            await self._start_run(spec, Creation.REPLACE, state, uid=run.uid)

    async def _start_run(
        self,
        spec: ScheduleSpec,
        creation: Creation,
        state: State | None = None,
        uid: str | None = None,
    ) -> None:
        name, known = _workflow_name(spec), self._backend.workflows
        if known and name not in known:
            raise WorkflowMisuse(
                f"workflow {spec.workflow!r} is not registered: App(…, workflows=[{spec.workflow}])"
            )
        # The parameters of the workflow that keeps a schedule: it runs wherever the code of its target is.
        given = {"plan": self._codec.encode(spec, ScheduleSpec, where="schedule")}
        if state is not None:
            given["state"] = self._codec.encode(state, State, where="state of a schedule")
        new = NewRun(
            id=run_id_of(spec.name),
            workflow=name,
            definition=known.get(name),
            input=Raw(msgspec.json.encode(given)),
            creation=creation,
            attributes=dict(KIND),
        )
        commit = msgspec.structs.replace(new.commit(), uid=uid)
        for pause in RETRY_PAUSES_S:
            with suppress(TryAgain):  # another process may declare the same schedule
                accepted((await self._store.commit([commit]))[0])
                return
            await self._store.clock.sleep(pause)
        accepted((await self._store.commit([commit]))[0])

    async def _ask(
        self,
        name: str,
        what: str,
        request: ChangeRequest,
        type: type[T],
        *,
        dedup: str | None = None,
    ) -> T:
        handle = self._handle(name)
        try:
            return await handle.update(what, request, type, dedup=dedup, timeout=ANSWER_TIMEOUT_S)
        except NotFound:
            raise NotFound("schedule", name) from None

    async def _switch(self, name: str, request: ChangeRequest) -> bool:
        """Pause or resume; returns whether that changes anything. If a worker has the schedule's code, it answers.
        Otherwise the request waits in the inbox, and a later worker reads it before it fires."""
        run = await self._run_of(name)
        if run.status.terminal:
            return await self._ask(name, "switch", request, bool)
        changes = await self._is_paused(run) is not request.paused
        id = await self._send(name, "switch", request)
        patience = ANSWER_TIMEOUT_S if await self._has_worker(run) else NO_WORKER_TIMEOUT_S
        try:
            answer = await answered(
                self._store, run, id, "switch", after=run.sequence, timeout=patience
            )
        except TimeoutError:
            return changes
        return answer.output is not None and bytes(answer.output) == b"true"

    async def _has_worker(self, run: Run) -> bool:
        """Whether a live worker has the code of a schedule."""
        if Capability.WORKERS not in self._store.capabilities:
            return True
        target, now = run.workflow.removeprefix(SCHEDULE_OF), await self._store.now()
        workers = await self._store.workers()
        return any(one.is_alive(now) and target in one.workflows for one in workers)

    async def _is_paused(self, run: Run) -> bool:
        """Whether a schedule is paused, once its run has read its inbox."""
        paused = self._recorded_state(run).paused
        for item in await self._store.inbox(run.id):
            if item.kind == ItemKind.UPDATE and item.name == "switch":
                request = self._codec.decode(
                    item.data or Raw(b"{}"), ChangeRequest, where="update 'switch'"
                )
                paused = request.paused
        return paused

    async def _send(self, name: str, what: str, request: ChangeRequest) -> str:
        """Send an update; returns its id."""
        data = self._codec.encode(request, ChangeRequest, where=f"update {what!r}")
        item = Item(kind=ItemKind.UPDATE, name=what, id=new_id(), data=data)
        await send_here(self._store, run_id_of(name), item)
        return item.id

    def _spec(self, run: Run) -> ScheduleSpec:
        published = run.ctx.get("plan")
        if published is None:  # no worker has started its run yet
            published = msgspec.json.decode(run.input or b"{}", type=dict[str, Raw])["plan"]
        spec: ScheduleSpec = self._codec.decode(
            published, ScheduleSpec, where="specification of a schedule"
        )
        return spec

    def _recorded_state(self, run: Run) -> State:
        published = run.ctx.get("state")
        if published is None:  # no worker has started its run yet
            published = msgspec.json.decode(run.input or b"{}", type=dict[str, Raw]).get("state")
        if published is None or bytes(published) == b"null":
            return State(cursor=run.created_at)
        state: State = self._codec.decode(published, State, where="state of a schedule")
        return state

    def _view(self, run: Run, paused: bool) -> ScheduleState:
        spec, state = self._spec(run), self._recorded_state(run)
        status = "paused" if paused else "active"
        over = run.status.terminal
        coming = None if over or paused else next(firings(spec, state.cursor), None)
        return ScheduleState(
            spec=spec,
            status=str(run.status) if over else status,
            next=None if coming is None else coming + jitter(spec, coming),
            last=state.last,
            fired=state.fired,
            skipped=state.skipped,
            missed=state.missed,
            changes=state.changes,
        )


def _workflow_name(spec: ScheduleSpec) -> str:
    return f"{SCHEDULE_OF}{spec.workflow}"


def run_id_of(name: str) -> str:
    """The id of the run of a schedule."""
    return f"schedule@{name}"
