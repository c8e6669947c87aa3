"""Completion: the event with which a run ends, and what it then sends to its parent and its children. Pure functions.

Closing: how a run that failed or was cancelled finishes what is in flight before it is compensated.

::

    the code fails ─▶ its tasks are cancelled ─▶ steps in flight are awaited ─▶ compensation.started
                      (`finally` may call steps)                                (calls are refused)

A step that is cut off has an unknown outcome and cannot be undone. So once a run is cancelled or has failed, a step,
map or child that the code abandons runs to its end (``operation.abandoned`` with `awaited`), and its outcome is
recorded. Before that, only operations with a compensation run to their end.

All of this follows from history: a replay closes a run at the same event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definitions.raised import step_failure
from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.operations.scopes import UNDO
from outlast.engine.replay.error_text import at_error, describe, details_of, text_of
from outlast.errors import (
    ChildFailed,
    ContinueAsNew,
    MapFailed,
    OutlastError,
    RunEnding,
    ScopeFailed,
    StepFailed,
)
from outlast.model.event import Event, payload_of
from outlast.model.json import to_json
from outlast.model.payloads import (
    ChildCompleted,
    ChildFailedEvent,
    Payload,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinued,
    WorkflowFailed,
    WorkflowStarted,
)
from outlast.model.run import Run
from outlast.model.run_contents import Item, ItemKind, Send

if TYPE_CHECKING:
    from outlast.engine.operations.operation import Operation
    from outlast.engine.replay.execution import Execution

FOREIGN = ("attached to a different loop", "got bad yield", "yield was used instead of yield from")
"""Texts of asyncio's errors for an awaitable of another loop."""


def end_of(execution: Execution) -> Payload | None:
    """The event that ends the run; None while it is active."""
    main = execution.main
    if main is None or not main.done() or not execution.closing.over:
        return None
    if main.cancelled():
        return WorkflowCancelled(reason=execution.cancel_reason or "the workflow cancelled itself")
    error, signature = main.exception(), execution.workflow.signature
    if isinstance(error, asyncio.CancelledError):
        return WorkflowCancelled(reason=execution.cancel_reason or text_of(error))
    if error is not None and not isinstance(error, ContinueAsNew):
        return WorkflowFailed(error=_text(error), details=details_of(error))
    try:
        if error is not None:
            input, _, _ = signature.encode_call(execution.codec, error.args_, error.kwargs_)
            return WorkflowContinued(input=input)
        return WorkflowCompleted(output=main.result())
    except OutlastError as refused:
        return WorkflowFailed(error=str(refused), details=details_of(refused))


def _text(error: BaseException) -> str:
    """The text of an error as the run's error; of a group those of all its errors."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_text(inner) for inner in error.exceptions)
    if isinstance(error, RuntimeError) and any(text in text_of(error) for text in FOREIGN):
        return (
            "RuntimeError: workflow code awaits something that is attached to a different loop, or to none"
            f"{at_error(error)}: its result would differ in a replay. Put that into a step and "
            "await the step"
        )
    return text_of(error) if isinstance(error, OutlastError) else describe(error)


def failed_key(execution: Execution) -> str | None:
    """The key of the step, map, child or scope whose failure ended the run, if one did."""
    main = execution.main
    error = main.exception() if main is not None and not main.cancelled() else None
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match step_failure(error):
        case StepFailed(step=key) | MapFailed(key=key) | ChildFailed(key=key):
            return key
        case ScopeFailed(scope=key):
            return key
    return None


def final_sends(execution: Execution, run: Run, end: Payload) -> list[Send]:
    """The messages of a run that ends: cancellations to its children, the outcome to its parent."""
    sends = child_cancellations(execution)
    if run.parent is not None:
        asked_by = "" if execution.started is None else execution.started.parent_uid
        sends.append(child_outcome(run, end, asked_by))
    return sends


def parent_uid_in(history: Sequence[Event]) -> str:
    """The life of its parent that started a child, by the first event of the child."""
    started = payload_of(history[0]) if history else None
    return started.parent_uid if isinstance(started, WorkflowStarted) else ""


def child_outcome(run: Run, end: Payload, asked_by: str) -> Send:
    """The message with which a child sends its outcome to the life `asked_by` of its parent."""
    outcome: ChildCompleted | ChildFailedEvent
    match end:
        case WorkflowCompleted(output=output):
            outcome = ChildCompleted(child_run_id=run.id, output=output, parent_uid=asked_by)
        case WorkflowFailed(error=error, details=details):
            outcome = ChildFailedEvent(
                child_run_id=run.id, error=error, parent_uid=asked_by, details=details
            )
        case WorkflowCancelled(reason=reason):
            error = f"cancelled: {reason}"
            outcome = ChildFailedEvent(child_run_id=run.id, error=error, parent_uid=asked_by)
        case _:
            raise AssertionError(f"{end} is not the end of a run")
    kind = (
        ItemKind.CHILD_COMPLETED if isinstance(outcome, ChildCompleted) else ItemKind.CHILD_FAILED
    )
    item = Item(kind=kind, name=run.id, id=f"end of {run.uid}", data=Raw(to_json(outcome)))
    return Send(run_id=run.parent or "", item=item)


def child_cancellations(execution: Execution) -> list[Send]:
    """The requests of a run that ends to cancel its children."""
    return [
        child.cancel("its parent has ended")
        for child in execution.open.values()
        if isinstance(child, ChildRun) and child.parent_close is ParentClose.CANCEL
    ]


MAX_CALLS = 100
"""How many operations code may request after its run has failed: enough for a ``finally``, and a limit for code that
catches its cancellation and never ends."""


class Closing:
    """Ends the code of one run after its failure or cancellation."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._calls = 0
        self.has_started = False
        """Whether operations in flight are awaited even if the code abandons them."""
        self.has_failed = False
        """Whether the workflow's main task has failed or was cancelled."""
        self.over = False
        """Whether no code is left and nothing is in flight: compensation can start."""

    def awaits(self, operation: Operation) -> bool:
        """Whether an operation that the code abandons runs to its end."""
        return operation.may_run and (self.has_started or operation.is_undoable)

    def cancel(self, main: asyncio.Task[Any] | None, reason: str) -> None:
        """Cancel the workflow's main task or, if that has ended, the tasks that it left."""
        if main is None or self.over:
            return
        self.has_started = True
        if main.done():
            self._cancel_tasks()
        else:
            main.cancel(reason)

    def advance(self, main: asyncio.Task[Any]) -> bool:
        """Continue to close a run whose main task has ended, when nothing is ready; True when it is closed now."""
        if self.over:
            return False
        if not self.has_failed and _has_failed(main):
            self.has_started = self.has_failed = self._execution.is_guarded = True
            self._cancel_tasks()
            self._execution.drain()
        if self._is_waiting():
            return False
        if self.has_failed:
            self._abandon_rest()
        self.over = True
        if self.has_failed:
            self._execution.loop.close_tasks()
        return True

    def check_call(self, *, asks: bool) -> None:
        """Refuse a call of the code of a failed run if it is over, or has made too many."""
        if self._execution.scope.path == UNDO:
            return
        self._calls += asks
        if self.over or self._calls > MAX_CALLS:
            raise RunEnding(self._execution.run_id)

    def _is_waiting(self) -> bool:
        """Whether something is in flight whose end has to be recorded. Other waits of a ``finally`` (for a signal,
        for a person) may never end."""
        open = self._execution.open.values()
        if any(operation.is_awaited for operation in open):
            return True
        return (
            self.has_failed
            and any(operation.ends_by_itself and not operation.is_abandoned for operation in open)
            and bool(self._execution.loop.tasks())
        )

    def _cancel_tasks(self) -> None:
        for task in self._execution.loop.tasks():
            task.cancel("the run has ended")

    def _abandon_rest(self) -> None:
        """Nothing is in flight any more: code that still waits is closed like evicted code."""
        execution = self._execution
        execution.updates.cancel_open()
        for operation in list(execution.open.values()):
            execution.force_abandon(operation)


def _has_failed(main: asyncio.Task[Any]) -> bool:
    return main.cancelled() or not isinstance(main.exception(), ContinueAsNew | None)
