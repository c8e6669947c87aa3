"""Execution: one run in memory. It turns history into running code and running code into history.

Live and in replay the same thing happens: an event is applied to the operation it belongs to, and
if that answers it, the code runs until nothing is ready. Live, what the code asks for becomes a new
intent; in replay, history says that it had been asked for, and a difference is a `Mismatch`::

    replay    history ──▶ apply ──▶ drain ──▶ asked = what history says next?
    live      outcome ──▶ apply ──▶ drain ──▶ asked ──▶ intents ──▶ sealed into one commit

Nothing here waits, reads a clock or touches a store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw

from outlast.engine.definition import StepDefinition, WorkflowDefinition
from outlast.engine.loop import RunLoop
from outlast.engine.operations import Operation, StepCall, TimerWait
from outlast.engine.scope import current_scope
from outlast.errors import Mismatch
from outlast.model.event import Event, EventType
from outlast.model.payloads import (
    Payload,
    TimerCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
    payload_of,
    to_event,
)
from outlast.model.times import EPOCH
from outlast.ports.codec import Codec

_ENDINGS = {EventType.WORKFLOW_COMPLETED, EventType.WORKFLOW_FAILED, EventType.WORKFLOW_CANCELLED}


class Evicted(BaseException):
    """Raised by every outlast call in code that is being thrown out of memory. Not an error: the
    run goes on elsewhere or later, so nothing that the code does now counts."""


class Execution:
    """The code of one run, its open operations, and the events not yet durable."""

    def __init__(self, workflow: WorkflowDefinition, run_id: str, codec: Codec) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.codec = codec
        self.loop = _WorkflowLoop(self)
        self.open: dict[str, Operation] = {}
        self.fresh: list[Event] = []
        self.last_started: str | None = None
        self.now = EPOCH
        self._asked: dict[str, Operation] = {}
        self._main: asyncio.Task[Any] | None = None
        self._replaying = False
        self._evicted = False

    # -- history to code ----------------------------------------------------------------------

    def replay(self, events: Iterable[Event]) -> None:
        """Bring the code to where `events` left it."""
        self._replaying = True
        for event in events:
            if event.type in _ENDINGS:
                return
            self._take(event)
        self._replaying = False
        self._record_asked()

    def deliver(
        self, payload: Payload, at: datetime, *, key: str = "", output: Raw | None = None
    ) -> None:
        """Record something that has happened, let the code run on it, and record what the code
        then asks for."""
        moment = max(at, self.now)
        event = to_event(
            payload, run_id=self.run_id, step_name=key, output=output, timestamp=moment
        )
        self.fresh.append(event)
        self._take(event)
        self._record_asked()

    def _take(self, event: Event) -> None:
        if event.type == EventType.WORKFLOW_STARTED:
            self.now = event.timestamp
            self._begin(event)
        else:
            operation = self.open.get(event.step_name)
            if operation is None:
                raise self._mismatch(event)
            answered = operation.apply(event)
            if not operation.recorded:
                raise self._mismatch(event)
            self._asked.pop(operation.key, None)
            if answered:
                del self.open[operation.key]
                self.now = event.timestamp
        self.loop.drain(self.now.timestamp())

    def _begin(self, event: Event) -> None:
        started = payload_of(event)
        assert isinstance(started, WorkflowStarted)
        args, kwargs = self.workflow.signature.decode_call(self.codec, started.input)
        coroutine = self.workflow.function(*args, **kwargs)
        self._main = self.loop.start_task(coroutine, self.loop.root)

    # -- code to history ----------------------------------------------------------------------

    def ask(self, operation: Operation) -> Operation:
        """Register what the code wants; history, or the engine, will answer it."""
        if self._evicted:
            raise Evicted
        operation.key = current_scope.get(self.loop.root).key(operation.name)
        self.open[operation.key] = operation
        self._asked[operation.key] = operation
        return operation

    async def call_step(
        self, step: StepDefinition, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Await the recorded outcome of a step."""
        if self._evicted:
            raise Evicted
        call = StepCall(step, self.codec, args, kwargs, self.loop.create_future())
        self.ask(call)
        return await call.future

    def start_timer(self, seconds: float, fire: Callable[[], None]) -> Callable[[], None]:
        """Ask for a durable timer; returns how to cancel it."""
        timer = TimerWait(self.now + timedelta(seconds=seconds), fire)
        self.ask(timer)

        def cancel() -> None:
            if timer.key not in self.open or self._evicted:
                return
            if timer.key in self._asked:  # nobody has heard of it yet: as if never asked
                del self.open[timer.key], self._asked[timer.key]
            else:
                timer.cancelled = True

        return cancel

    def _record_asked(self) -> None:
        if self._replaying or self.outcome() is not None:
            self._record_end()
            return
        for operation in list(self._asked.values()):
            self._append(operation.intent(), operation)
            if isinstance(operation, StepCall):
                self.last_started = operation.key
        for operation in list(self.open.values()):
            if isinstance(operation, TimerWait) and operation.cancelled:
                self._append(TimerCancelled(), operation)

    def _record_end(self) -> None:
        outcome = self.outcome()
        if outcome is not None and not self._replaying:
            self.fresh.append(to_event(outcome, run_id=self.run_id, timestamp=self.now))

    def _append(self, payload: Payload, operation: Operation) -> None:
        event = to_event(payload, run_id=self.run_id, step_name=operation.key, timestamp=self.now)
        self.fresh.append(event)
        if operation.apply(event):
            del self.open[operation.key]
        self._asked.pop(operation.key, None)

    def is_fresh(self, operation: Operation) -> bool:
        """Whether the operation's last intent is not durable yet, so that nothing can have begun."""
        return any(event.step_name == operation.key for event in self.fresh)

    def try_again(self, call: StepCall) -> None:
        """Record the intent of another attempt of a step."""
        self._append(call.next_attempt(), call)

    # -- what became of it --------------------------------------------------------------------

    def outcome(self) -> WorkflowCompleted | WorkflowFailed | None:
        """How the run has ended, or None while it goes on."""
        if self._main is None or not self._main.done():
            return None
        if self._main.cancelled():
            return WorkflowFailed(error="the workflow cancelled itself")
        error = self._main.exception()
        if error is not None:
            return WorkflowFailed(error=f"{type(error).__name__}: {error}")
        output = self.workflow.signature.encode_result(self.codec, self._main.result())
        return WorkflowCompleted(output=output)

    def seal(self) -> Sequence[Event]:
        """The events since the last seal: what the next commit must make durable."""
        fresh, self.fresh = self.fresh, []
        return fresh

    def evict(self) -> None:
        """Throw the code out of memory. Its ``finally`` blocks run, but outlast calls in them
        raise and record nothing."""
        self._evicted = True
        self.loop.close_tasks()

    def _mismatch(self, event: Event) -> Mismatch:
        asked = ", ".join(self._asked) or "nothing"
        return Mismatch(
            self.run_id,
            recorded=f"{event.sequence} {event.type} {event.step_name!r}",
            asked=f"asks for {asked}",
        )


class _WorkflowLoop(RunLoop):
    """A run's loop that knows its execution, so that outlast calls find it."""

    def __init__(self, execution: Execution) -> None:
        super().__init__(execution.start_timer)
        self.execution = execution


def current_execution() -> Execution | None:
    """The execution whose workflow code is calling, or None outside workflow code."""
    loop: object = asyncio._get_running_loop()
    return loop.execution if isinstance(loop, _WorkflowLoop) else None
