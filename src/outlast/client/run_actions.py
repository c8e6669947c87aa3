"""RunActions: what a client reads of runs and does to them, on any store.

It needs no workflow code: it works on runs whose code is gone, whose payloads cannot be read, or which
another process drives.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Raw

from outlast.client.deleting import delete_tree
from outlast.client.handle import RunHandle
from outlast.client.history_reset import edited_input, forked, retrial
from outlast.client.moved_runs import (
    TRIES,
    coming_and_going,
    find_here,
    has_come,
    send_here,
    unless_moved,
)
from outlast.client.queues import Queues
from outlast.client.results import answer_in, answered, ended, failure_of
from outlast.client.terminate import terminated
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.audit import activities_of, entries_of
from outlast.engine.replay.execution import current_execution
from outlast.engine.replay.history_reset import before_step
from outlast.errors import (
    CodeMissing,
    Fenced,
    InvalidValue,
    Moved,
    NotFound,
    RunCancelled,
    RunClosed,
    Undecodable,
    UpdateFailed,
    WorkflowMisuse,
)
from outlast.messages import Query, Signal, Update
from outlast.model.commit import Commit, Committed, Outcome
from outlast.model.event import Event, EventType
from outlast.model.ids import SCHEDULE_OF, check_id, check_name, new_id
from outlast.model.query import RunQuery
from outlast.model.run import MOVING, Run, Status
from outlast.model.run_contents import Activity, Entry, Item
from outlast.model.stats import QueueStats
from outlast.model.validation import check_reason
from outlast.ports.capabilities import Capability
from outlast.ports.codec import Codec
from outlast.ports.custom_engine import accepted
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S

T = TypeVar("T")


class RunActions:
    """Reads runs and acts on them through the store alone."""

    def __init__(
        self,
        store: Store,
        *,
        codec: Codec,
        wake_run: Callable[[str], None] | None = None,
        drop: Callable[[str], None] | None = None,
        ending: Callable[[str], asyncio.Future[Run | None] | None] | None = None,
        can_continue: Callable[[Run], bool] | None = None,
        workflows: dict[str, WorkflowDefinition] | None = None,
    ) -> None:
        self._opened = store
        self._codec = codec
        self._wake_run = wake_run or (lambda run_id: None)
        self._drop = drop or (lambda run_id: None)
        self._ending = ending or (lambda run_id: None)
        self._can_continue = can_continue or (lambda run: False)
        self._workflows = workflows or {}

    @property
    def _store(self) -> Store:
        if current_execution() is not None:
            raise WorkflowMisuse(
                "workflow code called its app: what that does would be done again in every replay. "
                "Await the call of another workflow for a child run, or put this into a step"
            )
        return self._opened

    # -- reading ------------------------------------------------------------------------------

    async def get(self, run_id: str) -> Run:
        """The record of a run; `Moved` if it goes on in another store."""
        return await find_here(self._store, run_id)

    async def history(self, run_id: str) -> list[Event]:
        """All events of a run; `Moved` if it goes on in another store."""
        history = await self._store.history(run_id)
        if not history or history[-1].type == EventType.WORKFLOW_MOVED:
            with suppress(Undecodable):  # the history of a damaged record can be read
                await find_here(self._store, run_id)
            history = await self._store.history(run_id)  # it may have come just now
        return history

    async def entries(self, run_id: str) -> list[Entry]:
        """The audit of a run: what was done, how long it took, with what input and output."""
        return entries_of(await self.history(run_id))

    async def activities(self, run_id: str) -> list[Activity]:
        """The state of each step of a run."""
        return activities_of(await self.history(run_id))

    def find(self, **filters: Any) -> AsyncIterator[Run]:
        """Runs that match, newest first: workflow, status, parent, attributes."""
        status = filters.pop("status", ())
        wanted = [status] if isinstance(status, str) else status
        query = RunQuery(status=frozenset(map(Status.parse, wanted)), **filters)
        return self._store.find_all(query)

    async def query(self, run_id: str, query: str | Query[Any], type: Any = Any) -> Any:
        """What a run has last published under a name, without waking it."""
        name = query if isinstance(query, str) else query.name
        type = type if isinstance(query, str) else query.type
        run = await self.get(run_id)
        if name not in run.ctx:
            raise NotFound("published value", name)
        return self._codec.decode(run.ctx[name], type, where=f"published {name!r}")

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """Wait for a run's result. `RunFailed` if it failed, `RunCancelled` if it was cancelled, `RunParked` if it is
        parked and no live worker has code that may continue it."""
        run = await ended(self._store, run_id, self._ending, timeout, self._can_continue)
        return await self._outcome(run)

    async def _outcome(self, run: Run) -> Any:
        if run.moved_to is not None:  # sealed just now: it goes on elsewhere
            raise Moved(run.id, run.moved_to)
        if run.status is Status.CANCELLED:
            raise RunCancelled(run.id, run.status, run.error or "")
        if run.status is Status.FAILED:
            raise await failure_of(self._store, run)
        workflow = self._workflows.get(run.workflow)
        output = run.result if run.result is not None else Raw(b"null")
        if workflow is None:
            return self._codec.decode(output, where=f"result of {run.workflow}")
        return workflow.signature.decode_result(self._codec, output)

    # -- queues -------------------------------------------------------------------------------

    @property
    def queues(self) -> Queues:
        """How queues stand, and their rules."""
        return Queues(self._store)

    async def stats(self) -> list[QueueStats]:
        """How all queues stand: what waits, what is under way, and which rule is in the way."""
        return await self.queues.stats()

    # -- acting -------------------------------------------------------------------------------

    async def signal(
        self,
        run_id: str,
        signal: str | Signal[Any],
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> None:
        """Send a signal; `RunClosed` if the run has ended, `NotFound` if there is none, `Busy` if a
        transaction, of yours maybe, has locked it for `timeout` seconds."""
        name, data = self._message(signal, value, "signal")
        # Two signals of different names may have the same key.
        id = new_id() if dedup is None else f"{name}: {dedup}"
        item = Item(kind="signal", name=name, id=id, data=data)
        await self._send(run_id, item, timeout=timeout)

    async def update(
        self,
        run_id: str,
        update: str | Update[Any, Any],
        value: Any = None,
        type: Any = Any,
        *,
        dedup: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Ask a run for something and wait for its answer, read as `type`; `UpdateFailed` if the
        answer is an error. With `dedup` it is done once in a life of the run, however often it is
        asked for, and the answer is always the same."""
        name, data = self._message(update, value, "update")
        if isinstance(update, Update) and type is Any:
            type = update.answer
        run = await self.get(run_id)
        id = new_id() if dedup is None else f"update {name}: {dedup}"
        # One with a key may have been answered, in this life or the one before.
        past = [] if dedup is None else await self._store.history(run_id)
        answer = answer_in(past, id)
        if answer is None:
            patience = LOCK_PATIENCE_S if timeout is None else timeout
            with suppress(RunClosed):  # it may have answered just before it ended
                item = Item(kind="update", name=name, id=id, data=data)
                await self._send(run_id, item, timeout=min(patience, LOCK_PATIENCE_S))
            after = run.sequence if dedup is None else len(past)
            answer = await answered(self._store, run, id, name, after=after, timeout=timeout)
        if answer.error is not None:
            raise UpdateFailed(run_id, name, answer.error)
        output = answer.output if answer.output is not None else Raw(b"null")
        return self._codec.decode(output, type, where=f"answer to update {name!r}")

    async def cancel(
        self, run_id: str, reason: str = "cancelled", *, timeout: float = LOCK_PATIENCE_S
    ) -> None:
        """Ask a run to stop and compensate. One that cannot be replayed with the code that is here
        is ended as it is: nothing can be compensated. `CodeMissing` if workers live and none of them has
        the code of the run: it would wait for ever. If no worker lives, the next one that has it obeys."""
        check_reason(reason)
        run = None
        try:
            run = await self._store.find_one(run_id)
            problem = run.error if run is not None and run.wait_kind == "mismatch" else None
        except Undecodable as damage:
            problem = str(damage)
        if problem is not None:
            reason = f"{reason} (not compensated: {problem})"
            await self.terminate(run_id, reason, timeout=timeout)
            return
        if run is not None and not run.status.terminal:
            await self._check_code(run)
        await self._send(run_id, Item(kind="cancel", name=reason), timeout=timeout)

    async def _check_code(self, run: Run) -> None:
        """Refuse what only code can do, if workers live and none has that code."""
        if run.workflow.startswith(SCHEDULE_OF):
            return  # of outlast's own, and not listed
        if run.workflow in self._workflows or Capability.WORKERS not in self._store.capabilities:
            return
        now = await self._store.now()
        if run.owner is not None and run.claimed_until is not None and run.claimed_until > now:
            return
        live = [worker for worker in await self._store.workers() if worker.is_alive(now)]
        # Those that only do queued steps say nothing about where workflows run.
        live = [worker for worker in live if worker.workflows]
        # This process may work, too, and not be listed yet.
        if (live or self._workflows) and not any(run.workflow in one.workflows for one in live):
            raise CodeMissing(run.id, run.workflow, max(len(live), 1))

    async def pause(self, run_id: str, *, timeout: float = LOCK_PATIENCE_S) -> None:
        """Let a run rest where it is, after the steps that are running, until it is resumed."""
        await self._send(run_id, Item(kind="pause"), timeout=timeout)

    async def resume(
        self, run_id: str, value: Any = None, *, timeout: float = LOCK_PATIENCE_S
    ) -> None:
        """Answer a halt with a value, let a paused run go on, or try a mismatched one again. A value
        that nobody has asked for is refused."""
        run = await self.get(run_id)
        parked = run.status is Status.PAUSED or run.wait_kind == "mismatch"
        # One that is still at work may be about to pause.
        going = run.status in (Status.PENDING, Status.RUNNING) and run.halt_data is None
        data = self._codec.encode_untyped(value, where="resume value")
        answer = Item(kind="resume", data=data)
        if parked or going:
            if value is not None and run.halt_data is None:
                raise InvalidValue(
                    f"run {run_id!r} is {run.status} and has asked nothing that a value would answer: "
                    "resume it without one, or answer when it has halted"
                )
            items = [Item(kind="unpause"), *([] if value is None else [answer])]
            await self._send(run_id, *items, timeout=timeout)
        elif run.halt_data is not None or run.status.terminal:
            await self._send(run_id, answer, timeout=timeout)
        else:
            raise InvalidValue(
                f"run {run_id!r} is {run.status}: only a halted or paused run can be resumed. "
                "Send a signal if it waits for one"
            )

    async def terminate(
        self, run_id: str, reason: str = "terminated", *, timeout: float = LOCK_PATIENCE_S
    ) -> None:
        """End a run now, whoever holds it and whatever it is: its code sees nothing of it. The commit that
        ends it tells its parent, and asks its children to stop, except for those that are to outlive
        it. `Busy` if a transaction has locked it for `timeout` seconds."""
        check_reason(reason)
        attempt = partial(self._attempt, timeout=timeout)
        for _ in range(TRIES):
            outcome = await terminated(self._store, run_id, reason, attempt)
            if isinstance(outcome, Committed):
                self._drop(run_id)
                return
            # It may be another life by now, or have come back from another store.
            if not await has_come(self._store, run_id, outcome):
                raise outcome
        raise coming_and_going(run_id)

    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        force: bool = False,
        timeout: float = LOCK_PATIENCE_S,
    ) -> bool:
        """Remove a run and all it owns, its descendants included; whether it was there. A tree in which
        a run has not ended is refused with `RunsOpen`, which names such runs; with `force` they end with
        the commit that removes them: a parent outside of the tree gets a failed child, and children
        outside of it are cancelled, unless they are abandoned ones. With `uid` only that life of it:
        a later one stays. One that is being moved to another store is not removed: all of it may still
        be here alone."""
        with suppress(Undecodable):
            run = await self._store.find_one(run_id)
            if run is not None and run.moved_to is not None and run.wait_kind == MOVING:
                raise Moved(run_id, run.moved_to)
        was_there, open = await delete_tree(
            *(self._store, run_id, uid),
            force=force,
            patience=timeout,
            attempt=partial(self._attempt, timeout=timeout),
        )
        self._store.notifier.wake()  # its place in a queue is free
        for id in (run_id, *open):
            self._drop(id)
        return was_there

    async def retry(self, run_id: str, *, timeout: float | None = 30.0) -> RunHandle[Any]:
        """Let a failed run go on from the step that failed: what was done before stays done. Children
        that run on are waited for again; those that are being cancelled have to end first, which may
        take `timeout` seconds. Signals and updates that it has not used are kept."""
        run = await self.get(run_id)
        if run.status is not Status.FAILED:
            raise InvalidValue(f"run {run_id!r} is {run.status}: only a failed run can be retried")
        commit = await retrial(self._store, run, self._workflows, self._ending, timeout)
        await self._write(commit, timeout=LOCK_PATIENCE_S if timeout is None else timeout)
        return RunHandle(self, run_id)

    async def fork(
        self,
        run_id: str,
        step: str,
        *,
        id: str | None = None,
        input: dict[str, Any] | None = None,
        timeout: float = LOCK_PATIENCE_S,
    ) -> RunHandle[Any]:
        """Begin a new run that shares another one's history up to where `step` was asked for.
        `input` are the arguments of the workflow, by name, that are to be other ones. Children that the
        other run waits for stay its own: this one begins the same anew."""
        run = await self.get(run_id)
        history = await self._store.history(run_id)
        if not any(event.step_name == step for event in history):
            raise NotFound("step", step)
        fork_id = new_id() if id is None else check_id(id)
        kept = before_step(history, step)
        edited = None
        if input is not None:
            edited = edited_input(self._workflows.get(run.workflow), run, self._codec, input)
        await self._write(
            forked(run, kept, self._workflows, run_id=fork_id, input=edited), timeout=timeout
        )
        return RunHandle(self, fork_id)

    def _message(
        self, message: str | Signal[Any] | Update[Any, Any], value: Any, kind: str
    ) -> tuple[str, Raw]:
        """The name and the encoded value of a message. The value of a declared one is checked against its type."""
        if isinstance(message, Signal | Update):
            where = f"{kind} {message.name!r}"
            return message.name, self._codec.encode(value, message.type, where=where)
        name = check_name(message, f"{kind} name")
        return name, self._codec.encode_untyped(value, where=f"{kind} {name!r}")

    # -- how ----------------------------------------------------------------------------------

    async def _send(self, run_id: str, *items: Item, timeout: float = LOCK_PATIENCE_S) -> None:
        await send_here(self._store, run_id, *items, patience=timeout)
        self._wake_run(run_id)

    async def _write(self, commit: Commit, *, timeout: float = LOCK_PATIENCE_S) -> None:
        outcome = await self._attempt(commit, timeout=timeout)
        if isinstance(outcome, NotFound | RunClosed | Fenced):
            await unless_moved(self._store, commit.run_id)
        accepted(outcome)

    async def _attempt(self, commit: Commit, *, timeout: float = LOCK_PATIENCE_S) -> Outcome:
        """The outcome of a commit; `Busy` if its run was locked for `timeout` seconds."""
        (outcome,) = await self._store.commit_when_free([commit], patience=timeout)
        return outcome
