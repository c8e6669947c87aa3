"""RunHandle: one run as a program holds it, and everything that can be done to it.

A handle is an id and a client: making one reads nothing. It works on runs whose code is elsewhere or gone, whose
values cannot be read, and which another process drives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import Raw

from outlast._public import public
from outlast.client.asks import open_asks, resumed
from outlast.client.backend import Backend
from outlast.client.history_reset import edited_input, forked, retrial
from outlast.client.moved_runs import TRIES, coming_and_going, find_here, has_come
from outlast.client.results import POLL_SECONDS, answer_in, answered, failure_of
from outlast.client.terminate import delete_tree, terminated
from outlast.client.view import RunView, view_of
from outlast.engine.replay.audit import activities_of, entries_of
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
)
from outlast.messages import Query, Signal, Update
from outlast.model.asks import ASKING, Ask
from outlast.model.commit import Committed
from outlast.model.event import Event, EventType
from outlast.model.ids import SCHEDULE_OF, check_id, new_id
from outlast.model.run import Run, Status, WaitKind
from outlast.model.run_contents import Activity, Entry, Item, ItemKind
from outlast.model.times import to_seconds
from outlast.model.validation import check_reason
from outlast.ports.clock import look_again_after
from outlast.ports.port import Capability
from outlast.ports.store_methods import LOCK_PATIENCE_S

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")
V = TypeVar("V")
A = TypeVar("A")

PAGE = 1000


@public
class RunHandle(Generic[T]):
    """A run, by its id.

    `timeout` is in seconds or a timedelta. Where something is sent to the run, it is how long to wait for a
    transaction, maybe your own, that has locked the run; then `Busy` is raised. Every method raises `NotFound` if the
    run does not exist and `Moved` if it is in another store.
    """

    def __init__(self, backend: Backend, id: str, *, is_new: bool = False) -> None:
        self._backend = backend
        self.id = id
        self.is_new = is_new
        """Whether the `start` that returned this handle has created the run. False if the run was there, and for a
        handle of `get`."""

    def __repr__(self) -> str:
        return f"<run {self.id!r}>"

    # -- reading ------------------------------------------------------------------------------

    async def result(self, *, timeout: float | timedelta | None = None) -> T:
        """Wait for the run to end and return its result; `RunFailed` or `RunCancelled` if it has none,
        `RunParked` if it is parked and no live worker has code that may continue it, `TimeoutError` after `timeout`."""
        run = await self._backend.ended(self.id, to_seconds(timeout))
        if run.moved_to is not None:  # sealed just now: it goes on elsewhere
            raise Moved(run.id, run.moved_to)
        if run.status is Status.CANCELLED:
            raise RunCancelled(run.id, run.status, run.error or "")
        if run.status is Status.FAILED:
            raise await failure_of(self._backend.store, run)
        workflow = self._backend.workflows.get(run.workflow)
        output = run.result if run.result is not None else Raw(b"null")
        codec = self._backend.codec
        value: T = (
            codec.decode(output, where=f"result of {run.workflow}")
            if workflow is None
            else workflow.signature.decode_result(codec, output)
        )
        return value

    async def status(self) -> RunView:
        """How the run stands now: its status, input, result, error, published values and attributes."""
        return view_of(await self._backend.record(self.id), self._backend.codec)

    @overload
    async def query(self, query: Query[V]) -> V: ...
    @overload
    async def query(self, query: str) -> Any: ...
    @overload
    async def query(self, query: str, type: TypeForm[V]) -> V: ...
    async def query(self, query: str | Query[Any], type: Any = Any) -> Any:
        """What the workflow last published under a name, decoded as `type`. The run is not woken."""
        name = query if isinstance(query, str) else query.name
        type = type if isinstance(query, str) else query.type
        run = await self._backend.record(self.id)
        if name not in run.ctx:
            raise NotFound("published value", name)
        return self._backend.codec.decode(run.ctx[name], type, where=f"published {name!r}")

    async def history(self) -> list[Event]:
        """All events of the run."""
        store = self._backend.store
        history = await store.history(self.id)
        if not history or history[-1].type == EventType.WORKFLOW_MOVED:
            with suppress(Undecodable):  # the history of a damaged record can be read
                await find_here(store, self.id)
            history = await store.history(self.id)  # it may have come just now
        return history

    async def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """The events after a sequence, one by one; with `follow` also further ones, until the run ends.

        A run that continues as new, is retried or replaced starts a new history: its events follow from
        sequence 1 on.
        """
        store = self._backend.store
        uid = (await store.get(self.id)).uid
        while True:
            wakeups = store.notifier.wakeups
            page = await store.history(self.id, after=after, limit=PAGE)
            run = await store.get(self.id)
            if run.uid != uid:
                uid, after = run.uid, 0  # the page may be of either life: read the new one
                continue
            for event in page:
                yield event
                after = event.sequence
            if page and after < run.sequence:
                continue
            if run.moved_to is not None:
                raise Moved(run.id, run.moved_to)
            if run.status.terminal or not follow:
                return
            patience = look_again_after(store.clock, POLL_SECONDS)
            await store.notifier.wait(store.clock, patience, since=wakeups)

    async def entries(self) -> list[Entry]:
        """The audit of the run: what was done, how long it took, with what input and output."""
        return entries_of(await self.history())

    async def activities(self) -> list[Activity]:
        """The state of each step of the run."""
        return activities_of(await self.history())

    # -- messages -----------------------------------------------------------------------------

    @overload
    async def signal(
        self,
        signal: Signal[None],
        *,
        dedup: str | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None: ...
    @overload
    async def signal(
        self,
        signal: Signal[V],
        value: V,
        *,
        dedup: str | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None: ...
    @overload
    async def signal(
        self,
        signal: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None: ...
    async def signal(
        self,
        signal: str | Signal[Any],
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None:
        """Send a signal; with `dedup` the run takes it once, however often this is called. `RunClosed` if the
        run has ended."""
        name, data = self._backend.message(signal, value, "signal")
        item = signal_item(name, data, dedup)
        await self._backend.send(self.id, item, timeout=to_seconds(timeout))

    @overload
    async def update(
        self,
        update: Update[V, A],
        value: V,
        *,
        dedup: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> A: ...
    @overload
    async def update(
        self,
        update: str,
        value: Any = None,
        *,
        dedup: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> Any: ...
    @overload
    async def update(
        self,
        update: str,
        value: Any,
        type: TypeForm[A],
        *,
        dedup: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> A: ...
    @overload
    async def update(
        self,
        update: str,
        *,
        type: TypeForm[A],
        dedup: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> A: ...
    async def update(
        self,
        update: str | Update[Any, Any],
        value: Any = None,
        type: Any = Any,
        *,
        dedup: str | None = None,
        timeout: float | timedelta | None = None,
    ) -> Any:
        """Send an update (`outlast.on_update`) and wait for the answer, decoded as `type`; `UpdateFailed` if the
        answer is an error. With `dedup` the run applies it once in a life, and the answer is always the same."""
        backend, store, timeout_s = self._backend, self._backend.store, to_seconds(timeout)
        backend.check_may_wait()
        name, data = backend.message(update, value, "update")
        if isinstance(update, Update) and type is Any:
            type = update.answer
        run = await backend.record(self.id)
        id = new_id() if dedup is None else f"update {name}: {dedup}"
        # One with a key may have been answered, in this life or the one before.
        past = [] if dedup is None else await store.history(self.id)
        answer = answer_in(past, id)
        if answer is None:
            patience = LOCK_PATIENCE_S if timeout_s is None else timeout_s
            with suppress(RunClosed):  # it may have answered just before it ended
                item = Item(kind=ItemKind.UPDATE, name=name, id=id, data=data)
                await backend.send(self.id, item, timeout=min(patience, LOCK_PATIENCE_S))
            after = run.sequence if dedup is None else len(past)
            answer = await answered(store, run, id, name, after=after, timeout=timeout_s)
        if answer.error is not None:
            raise UpdateFailed(self.id, name, answer.error)
        output = answer.output if answer.output is not None else Raw(b"null")
        return backend.codec.decode(output, type, where=f"answer to update {name!r}")

    async def pause(self, *, timeout: float | timedelta = LOCK_PATIENCE_S) -> None:
        """Stop the run where it is, after the steps that are running, until it is resumed."""
        await self._backend.send(self.id, Item(kind=ItemKind.PAUSE), timeout=to_seconds(timeout))

    async def resume(
        self,
        value: Any = None,
        *,
        ask: str | None = None,
        by: str = "",
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> None:
        """Answer what the run asks (`outlast.halt`, `outlast.ask`) with a value, continue a paused run, or try a
        parked one again. `ask` is the id of the question, which a run that asks several needs; `by` is who answers.
        A value is refused if the run has asked for none, or has an answer."""
        backend, timeout_s = self._backend, to_seconds(timeout)
        run = await backend.record(self.id)
        parked = run.status is Status.PAUSED or run.is_parked
        asks = ASKING in run.attributes
        # One that is still at work may be about to pause.
        going = run.status in (Status.PENDING, Status.RUNNING) and not asks
        if ask is None and (parked or going):
            if value is not None and not asks:
                raise InvalidValue(
                    f"run {self.id!r} is {run.status} and has asked nothing that a value would answer: "
                    "resume it without one, or answer when it has halted"
                )
        elif ask is None and not asks and not run.status.terminal:
            raise InvalidValue(
                f"run {self.id!r} is {run.status}: only a halted or paused run can be resumed. "
                "Send a signal if it waits for one"
            )
        if ask is None and run.status.terminal:
            raise RunClosed(self.id, run.status)
        if ask is not None or value is not None or not (parked or going):
            await resumed(backend, run, value, ask, by=by, timeout=timeout_s)
        if parked or going:
            await backend.send(self.id, Item(kind=ItemKind.UNPAUSE), timeout=timeout_s)

    async def asks(self) -> list[Ask]:
        """What the run asks people now."""
        return await open_asks(self._backend, await self._backend.record(self.id))

    async def cancel(
        self, reason: str = "cancelled", *, timeout: float | timedelta = LOCK_PATIENCE_S
    ) -> None:
        """Ask the run to stop: its code sees `CancelledError`, and completed steps are compensated.

        A run that no code here can replay is ended as it is: nothing can be compensated. `CodeMissing` if workers
        live and none of them has the code of the run. If no worker lives, the next one that has it obeys.
        """
        check_reason(reason)
        run = None
        try:
            run = await self._backend.store.find_one(self.id)
            problem = run.error if run is not None and run.wait_kind == WaitKind.MISMATCH else None
        except Undecodable as damage:
            problem = str(damage)
        if problem is not None:
            await self.terminate(f"{reason} (not compensated: {problem})", timeout=timeout)
            return
        if run is not None and not run.status.terminal:
            await self._check_code(run)
        item = Item(kind=ItemKind.CANCEL, name=reason)
        await self._backend.send(self.id, item, timeout=to_seconds(timeout))

    async def _check_code(self, run: Run) -> None:
        """Refuse what only code can do, if workers live and none has that code."""
        if run.workflow.startswith(SCHEDULE_OF):
            return  # of outlast's own, and not listed
        store, workflows = self._backend.store, self._backend.workflows
        if run.workflow in workflows or Capability.WORKERS not in store.capabilities:
            return
        now = await store.now()
        if run.owner is not None and run.claimed_until is not None and run.claimed_until > now:
            return
        live = [worker for worker in await store.workers() if worker.is_alive(now)]
        # Those that only do queued steps say nothing about where workflows run.
        live = [worker for worker in live if worker.workflows]
        # This process may work, too, and not be listed yet.
        if (live or workflows) and not any(run.workflow in one.workflows for one in live):
            raise CodeMissing(run.id, run.workflow, max(len(live), 1))

    # -- from outside -------------------------------------------------------------------------

    async def terminate(
        self, reason: str = "terminated", *, timeout: float | timedelta = LOCK_PATIENCE_S
    ) -> None:
        """End the run now, regardless of its owner and state: its code does not see it. The commit that ends the
        run tells its parent, and asks its children to stop, except for those that are to outlive it."""
        check_reason(reason)
        backend = self._backend
        attempt = partial(backend.attempt, timeout=to_seconds(timeout))
        for _ in range(TRIES):
            outcome = await terminated(backend.store, self.id, reason, attempt)
            if isinstance(outcome, Committed):
                backend.drop(self.id)
                return
            # It may be another life by now, or have come back from another store.
            if not await has_come(backend.store, self.id, outcome):
                raise outcome
        raise coming_and_going(self.id)

    async def delete(
        self,
        *,
        uid: str | None = None,
        force: bool = False,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> bool:
        """Remove the run and all it owns, its descendants included; returns whether it was there.

        A tree in which a run has not ended is refused with `RunsOpen`, which names such runs. With `force` they end
        with the commit that removes them: a parent outside of the tree gets a failed child, and children outside of
        it are cancelled, unless they are abandoned ones. With `uid` only that life is removed. A run that is
        being moved to another store is not removed: all of it may still be here alone.
        """
        backend, store, timeout_s = self._backend, self._backend.store, to_seconds(timeout)
        with suppress(Undecodable):
            run = await store.find_one(self.id)
            if run is not None and run.moved_to is not None and run.wait_kind == WaitKind.MOVING:
                raise Moved(self.id, run.moved_to)
        was_there, open = await delete_tree(
            *(store, self.id, uid),
            force=force,
            patience=timeout_s,
            attempt=partial(backend.attempt, timeout=timeout_s),
        )
        store.notifier.wake()  # its place in a queue is free
        for id in (self.id, *open):
            backend.drop(id)
        return was_there

    async def retry(self, *, timeout: float | timedelta | None = 30.0) -> RunHandle[T]:
        """Continue a failed run from the step that failed: what was done before stays done. Children that run are
        waited for again; those that are being cancelled have to end first, which may take `timeout`. Signals and
        updates that it has not used are kept."""
        backend, timeout_s = self._backend, to_seconds(timeout)
        life = ""
        while (run := await backend.record(self.id)).uid != life:
            if run.status is not Status.FAILED:
                raise InvalidValue(
                    f"run {self.id!r} is {run.status}: only a failed run can be retried"
                )
            commit = await retrial(backend.store, run, backend.workflows, backend.ending, timeout_s)
            life = commit.create.uid if commit.create else ""
            # Fenced: another retry was first, or the answer to this one was lost and its life has continued.
            with suppress(Fenced):
                await backend.write(
                    commit, timeout=LOCK_PATIENCE_S if timeout_s is None else timeout_s
                )
                break
        return self

    async def fork(
        self,
        step: str,
        *,
        id: str | None = None,
        input: dict[str, Any] | None = None,
        timeout: float | timedelta = LOCK_PATIENCE_S,
    ) -> RunHandle[T]:
        """Start a new run that shares the history of this one up to where `step` was asked for. `input` replaces
        arguments of the workflow, by name. Children that this run waits for stay its own: the new run starts
        its own."""
        backend = self._backend
        run = await backend.record(self.id)
        history = await backend.store.history(self.id)
        if not any(event.step_name == step for event in history):
            raise NotFound("step", step)
        fork_id = new_id() if id is None else check_id(id)
        kept = before_step(history, step)
        edited = None
        if input is not None:
            edited = edited_input(backend.workflows.get(run.workflow), run, backend.codec, input)
        await backend.write(
            forked(run, kept, backend.workflows, run_id=fork_id, input=edited),
            timeout=to_seconds(timeout),
        )
        return RunHandle(backend, fork_id)


def signal_item(name: str, data: Raw, dedup: str | None = None) -> Item:
    """A signal as an item of an inbox; with `dedup` it is received once."""
    # Two signals of different names may have the same key.
    id = new_id() if dedup is None else f"{name}: {dedup}"
    return Item(kind=ItemKind.SIGNAL, name=name, id=id, data=data)
