"""Execution: one run in memory. It turns history into running code and running code into history.

A history has two kinds of events. *Statements* come from the code: it requests a step, a timer or a child, abandons
one, or records a branch. *Deliveries* answer them: a step has completed, a timer has fired, a signal has arrived.
Live and in replay the same happens: a delivery is applied, the code runs until nothing is ready, and its statements
are matched with history or, at the end of history, recorded::

    replay    history ──▶ delivery ──▶ code runs ──▶ statements match history?
    live      outcome ──▶ delivery ──▶ code runs ──▶ new statements ──▶ pending commit

Nothing in this package waits, reads a clock or calls a store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from msgspec import Raw

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.scopes import UNDO, Compensations
from outlast.engine.operations.waits import start_timer
from outlast.engine.replay.completion import Closing
from outlast.engine.replay.error_text import at_error, describe, ends_in_bug
from outlast.engine.replay.event_loop import RunLoop, Scope, current_scope, running_loop
from outlast.engine.replay.replay_log import HistoryIndex, PendingCommit, ReplayLog, Undelivered
from outlast.engine.replay.updates import Updates
from outlast.errors import ContinueAsNew, Mismatch, RunEnding, WorkflowMisuse
from outlast.model.event import Event, EventType, payload_of, to_event, type_of
from outlast.model.ids import child_id
from outlast.model.payloads import (
    CancelRequested,
    MessageRejected,
    OperationAbandoned,
    Payload,
    UpdateAccepted,
    WorkflowStarted,
)
from outlast.model.queue_policy import QueueOptions
from outlast.model.times import EPOCH
from outlast.ports.codec import Codec

log = logging.getLogger("outlast.engine")
ENDINGS = frozenset(
    {
        EventType.WORKFLOW_COMPLETED,
        EventType.WORKFLOW_FAILED,
        EventType.WORKFLOW_CANCELLED,
        EventType.WORKFLOW_CONTINUED,
        EventType.WORKFLOW_MOVED,
    }
)


class Evicted(BaseException):
    """Raised by every outlast call in code that is evicted from memory. Not an error: another process or a later
    replay continues the run, so nothing that the code does now is recorded."""


class Execution:
    """The code of one run, its open operations, and what is not yet durable."""

    def __init__(
        self,
        workflow: WorkflowDefinition,
        *,
        run_id: str,
        uid: str,
        codec: Codec,
        replay_log: ReplayLog | None = None,
        is_strict: bool = False,
        park_on: tuple[type[Exception], ...] | None = None,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.uid = uid
        self.codec = codec
        self.is_strict = is_strict
        """Whether a step that is called with other arguments than recorded is a mismatch."""
        self.bug: BaseException | None = None
        """The programming error that has ended the code. What the code stated after the last delivery is not recorded
        then, and nothing more is delivered: corrected code continues from there."""
        self.undelivered: list[Undelivered] = []
        """What was to be delivered after that."""
        self._last_bug: BaseException | None = None
        self._park_on = park_on
        self.changed_calls: list[str] = []
        """The keys of steps that this replay called with other arguments than recorded."""
        self.now = EPOCH
        self.open: dict[str, Operation] = {}
        self.launches: list[Operation] = []
        """Operations that the engine starts once the next commit is durable."""
        self.abandoned: list[Operation] = []
        self.pending = PendingCommit()
        self.replay_log = replay_log or ReplayLog()
        self.history = HistoryIndex()
        self.loop = _WorkflowLoop(self)
        self.seed = uid
        self.origin: Raw | None = None
        self.queue_options: QueueOptions | None = None
        self.evicted = False
        self.cancel_reason: str | None = None
        self.is_guarded = False
        """Whether calls of the code are checked first: the run is closing or evicted."""
        self._misuse: WorkflowMisuse | None = None
        self.closing = Closing(self)
        self.compensations = Compensations(self)
        self.updates = Updates(self)
        self.reads_history = False
        """Whether a replay is going on: what history contains is not executed again."""
        self.main: asyncio.Task[Any] | None = None
        """The task whose end is the end of the run, once the run has started."""
        self.has_ended = False
        """Whether history already contains the end of the run."""
        self.started: WorkflowStarted | None = None
        self._statements: dict[tuple[str, str], tuple[Payload, Operation | None]] = {}
        self._lineage: Sequence[tuple[str, int]] = ()
        self._asked: dict[str, tuple[str, Raw]] = {}

    # -- history to code ----------------------------------------------------------------------

    def replay(self, events: Sequence[Event]) -> None:
        """Run the code up to where `events` end."""
        self.history = history = HistoryIndex(events)
        self.reads_history = True
        with self.loop.inside:
            for event in events:
                history.advance(event)
                if event.type in ENDINGS:
                    self.has_ended = True
                    return
                if not history.skips(event):
                    self._apply(event, payload_of(event))
        self.reads_history = False
        self.abandoned.clear()
        if self.bug is None:
            self._record_statements()

    def deliver(
        self, payload: Payload, at: datetime, *, key: str = "", output: Raw | None = None
    ) -> None:
        """Record a delivery, let the code run on it, and record its statements."""
        if self.bug is not None:
            if not isinstance(payload, CancelRequested):
                self.undelivered.append(Undelivered(key, payload, output))
                return
            self._record_statements()
        event = to_event(
            payload,
            run_id=self.run_id,
            step_name=key,
            output=output,
            timestamp=max(at, self.now),
        )
        self.pending.events.append(event)
        operation = self.open.get(key)
        self._apply(event, payload)
        if operation is not None:
            operation.on_recorded(self, payload)
        if self.bug is None:
            self._record_statements()

    def _apply(self, event: Event, payload: Payload) -> None:
        key = event.step_name
        stated = self._statements.pop((key, event.type), None)
        if stated is not None:
            self._apply_statement(key, event, payload)
            return
        if self.bug is not None and self._continues_after_bug(event, payload):
            return
        if self._statements and not self.history.ends_what_is_skipped(event):
            # Statements made before this delivery were recorded before it, or never. Only the end of a skipped
            # scope was a statement when it ran: other tasks may have made statements after it.
            raise self._mismatch(event)
        operation = self.open.get(key)
        if operation is not None and operation.recorded:
            if not operation.apply(event, payload):
                return
            del self.open[key]
            self.now = event.timestamp
        else:
            self.now = event.timestamp
            self._apply_unrequested(event, payload)
        self._run()

    def _apply_unrequested(self, event: Event, payload: Payload) -> None:
        """A delivery that no operation waits for: the start of the run, an update, a cancellation."""
        match payload:
            case WorkflowStarted():
                self.seed = payload.seed or self.uid
                self.origin = payload.origin or payload.input
                self.queue_options = payload.place
                self._lineage, self._asked = payload.lineage, payload.asked
                self.started = payload
                self._start_main(payload)
            case CancelRequested(reason=reason):
                if self.cancel_reason is None or not self.closing.has_failed:
                    self.cancel_reason = reason
                self.closing.cancel(self.main, reason)
            case MessageRejected():
                pass  # it was set aside, and the code never saw it
            case UpdateAccepted() if self.updates.accept(event.step_name, payload):
                pass
            case _:
                raise self._mismatch(event)

    def _start_main(self, started: WorkflowStarted) -> None:
        args, kwargs = self.workflow.signature.decode_call(self.codec, started.input)
        # Called here and not in the task: arguments that do not fit the code are a mismatch, not a failure.
        code = self.workflow.main(self, args, kwargs)
        self.main = self.loop.start_task(self._run_main(code), self.loop.root)

    async def _run_main(self, code: Coroutine[Any, Any, Any]) -> Any:
        """The workflow's code, then its open updates. The result is encoded here: one that cannot be encoded fails
        the run. If the code fails or is cancelled, its updates are cancelled like all its tasks."""
        signature = self.workflow.signature
        try:
            try:
                value = await code
            except ContinueAsNew as again:
                signature.encode_call(self.codec, again.args_, again.kwargs_)
                await self.updates.finish()
                raise
            await self.updates.finish()
            self._raise_misuse()
            return signature.encode_result(self.codec, value)
        finally:
            self.updates.close()

    def _run(self) -> None:
        """Let the code run until nothing is ready. A run that has failed is closed, and then compensated; if a
        programming error ended its code, nothing more happens: the run is parked."""
        self.loop.drain(self.now.timestamp())
        if self.main is not None and self.main.done():
            error = None if self.closing.has_started else self.final_error
            if error is not None and self.parks_on(error):
                self.bug = error
            else:
                self._close(self.main)

    def _close(self, main: asyncio.Task[Any]) -> None:
        if self.closing.advance(main):
            undo = self.compensations.begin(main)
            if undo is not None:
                self.main = self.loop.start_task(undo, Scope(UNDO))
                self.drain()

    def parks_on(self, error: BaseException) -> bool:
        """Whether the run is parked if this error ends its code."""
        return ends_in_bug(error, self._park_on)

    def _continues_after_bug(self, event: Event, payload: Payload) -> bool:
        """Apply an event of a run whose code has ended in a programming error. It is cancelled while it is parked; or it
        was recorded by an app that does not park such a run, and failed. Whether the event is applied."""
        assert self.main is not None
        self.bug, self._last_bug = None, self.bug
        if isinstance(payload, CancelRequested) and payload.after_bug:
            ended: Any = self.loop.create_future()
            ended.cancel(payload.reason)
            self.main = ended
            return False
        self._close(self.main)
        stated = self._statements.pop((event.step_name, event.type), None)
        if stated is not None:
            self._apply_statement(event.step_name, event, payload)
        return stated is not None

    def drain(self) -> None:
        """Let the code run until nothing is ready."""
        self.loop.drain(self.now.timestamp())

    def _apply_statement(self, key: str, event: Event, payload: Payload) -> None:
        """A statement is recorded: its operation takes in the recorded event."""
        operation = self.open.get(key)
        if operation is not None:
            if self.reads_history and not operation.is_inherited:
                operation.is_inherited = True
                operation.intent_sequence = event.sequence
            operation.recorded = True
            if isinstance(payload, OperationAbandoned):
                if not payload.awaited:
                    self.abandoned.append(operation)
                    del self.open[key]
            elif operation.apply(event, payload):
                del self.open[key]

    # -- code to history ----------------------------------------------------------------------

    def request(self, operation: Operation) -> Operation:
        """Open an operation. Its intent is recorded when nothing is ready any more."""
        if self.is_guarded:
            self._check_call(asks=True)
        operation.key = key = self.scope.key(operation.name)
        self.open[key] = operation
        self.record(key, operation.intent(), operation)
        return operation

    async def perform(self, operation: Operation) -> Any:
        """Request an operation and await its answer. If the code stops waiting, that is recorded."""
        operation.future = self.loop.create_future()
        self.request(operation)
        try:
            return await operation.future
        except asyncio.CancelledError:
            self.abandon(operation)
            raise

    def record(self, key: str, payload: Payload, operation: Operation | None = None) -> None:
        """Record a statement of the code under a key."""
        if self.is_guarded:
            self._check_call(asks=False)
        self._statements[key, type_of(payload)] = (payload, operation)

    def record_unchecked(
        self, key: str, payload: Payload, operation: Operation | None = None
    ) -> None:
        """Record a statement on behalf of code whose calls are refused by now."""
        self._statements[key, type_of(payload)] = (payload, operation)

    def abandon(self, operation: Operation) -> None:
        """The code no longer waits for an operation."""
        if not self.evicted and not self.closing.over:
            self.force_abandon(operation)

    def force_abandon(self, operation: Operation) -> None:
        """Nothing waits for an operation any more. One that is not recorded is forgotten; one that may have to be
        undone runs to its end, and its outcome is recorded."""
        if self.open.get(operation.key) is not operation or operation.is_abandoned:
            return
        if not operation.recorded:
            del self.open[operation.key]
            for stated in [stated for stated in self._statements if stated[0] == operation.key]:
                del self._statements[stated]
            return
        if any(key == operation.key for key, _ in self._statements):
            return  # a scope that has just ended: its end is about to be recorded
        operation.is_abandoned = True
        operation.is_awaited = awaited = self.closing.awaits(operation)
        if not awaited:
            operation.on_cut_off(self)
        abandoned = OperationAbandoned(awaited=awaited, closing=self.closing.has_failed)
        self.record_unchecked(operation.key, abandoned, operation)

    def refuse(self, misuse: WorkflowMisuse) -> None:
        """Raise an error in the code where it next calls outlast, or at its end."""
        if self._misuse is None:
            self._misuse, self.is_guarded = misuse, True

    def _raise_misuse(self) -> None:
        if self._misuse is not None and not self.closing.has_failed:
            raise self._misuse

    def _check_call(self, *, asks: bool) -> None:
        if self.evicted:
            raise Evicted
        self._raise_misuse()
        self.closing.check_call(asks=asks)

    def _record_statements(self) -> None:
        while self._statements:
            (key, _), (payload, _) = next(iter(self._statements.items()))
            event = to_event(payload, run_id=self.run_id, step_name=key, timestamp=self.now)
            self.pending.events.append(event)
            del self._statements[key, event.type]
            operation = self.open.get(key)
            self._apply_statement(key, event, payload)
            if operation is not None:
                operation.on_recorded(self, payload)

    # -- what it knows of itself --------------------------------------------------------------

    def life_of(self, operation: Operation) -> str:
        """The uid of the life that first requested an operation. A retried run inherits open operations."""
        if operation.key in self._asked:
            uid, input = self._asked[operation.key]
            if operation.is_call_with(input):
                return uid
        for uid, last in self._lineage:
            if 0 < operation.intent_sequence <= last:
                return uid
        return self.uid

    def child_id(self, key: str) -> str:
        """The id of the child that this life requests under `key`."""
        later = self.started is not None and self.started.later
        return child_id(self.run_id, key, self.uid if later else "")

    def is_own(self, uid: str) -> bool:
        """Whether `uid` is this life or one of the earlier lives that it retries."""
        return uid == self.uid or any(uid == earlier for earlier, _ in self._lineage)

    @property
    def scope(self) -> Scope:
        """The scope of the running task."""
        return current_scope.get(self.loop.root)

    @property
    def replaying(self) -> bool:
        """Whether events of history have yet to be applied."""
        return self.history.remaining > 0

    @property
    def is_active(self) -> bool:
        """Whether the code runs, is being closed, or is being compensated."""
        main = self.main
        return main is not None and not (main.done() and self.closing.over)

    @property
    def final_error(self) -> BaseException | None:
        """The error that ended the code, if one did."""
        main = self.main
        if main is None or not main.done() or main.cancelled():
            return None
        return main.exception()

    @property
    def refuses_calls(self) -> bool:
        """Whether outlast calls of the code raise."""
        return self.evicted or self.closing.over

    def eviction_error(self) -> BaseException:
        """What outlast calls raise in code that is evicted or closed."""
        return Evicted() if self.evicted else RunEnding(self.run_id)

    def evict(self) -> None:
        """Remove the code from memory. Its ``finally`` blocks run, but outlast calls in them raise and record
        nothing."""
        if not self.evicted:
            self.evicted = self.is_guarded = True
            self.loop.close_tasks()

    def on_changed_call(self, event: Event) -> None:
        """In this replay the code calls a step with other arguments than history has. The recorded result counts;
        the difference is logged, or in a strict replay a mismatch. Arguments may be secret: none is shown."""
        names = [
            f"{event.type} {event.step_name!r} with {word} arguments" for word in ("these", "other")
        ]
        if self.is_strict:
            raise Mismatch(
                self.run_id,
                recorded=f"{event.sequence} {names[0]}",
                asked=names[1],
                at=", ".join(self.loop.locations()),
            )
        self.changed_calls.append(event.step_name)
        log.warning(
            "run %s of workflow %r: in a replay the code calls step %r with other arguments than history has. The "
            "recorded result counts. Use outlast.now(), random() and uuid4() in workflow code; "
            "App(strict_replay=True) parks such a run",
            self.run_id, self.workflow.name, event.step_name,
        )  # fmt: skip

    def _mismatch(self, event: Event) -> Mismatch:
        asked = ", ".join(f"{type} {key!r}" for key, type in self._statements) or "nothing more"
        if self._last_bug is not None:
            asked += f", and it ended with {describe(self._last_bug)}{at_error(self._last_bug)}"
        return Mismatch(
            self.run_id,
            recorded=f"{event.sequence} {event.type} {event.step_name!r}",
            asked=asked,
            at=", ".join(self.loop.locations()),
        )


class _WorkflowLoop(RunLoop):
    """A run loop that knows its execution, so that outlast calls find it."""

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        self.execution = execution

    def start_timer(self, seconds: float, fire: Callable[[], None]) -> Callable[[], None]:
        return start_timer(self.execution, seconds, fire)


def current_execution() -> Execution | None:
    """The execution whose workflow code is calling, or None outside workflow code."""
    loop: object = running_loop()
    return loop.execution if isinstance(loop, _WorkflowLoop) else None
