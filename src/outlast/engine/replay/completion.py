"""Completion: the event with which a run ends, and what it then sends to its parent and its children. Pure functions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Raw

from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.replay.error_text import at_error, describe, text_of
from outlast.engine.replay.execution import Execution
from outlast.errors import (
    ChildFailed,
    ContinueAsNew,
    MapFailed,
    OutlastError,
    ScopeFailed,
    StepFailed,
)
from outlast.model.event import Event
from outlast.model.event_data import payload_of
from outlast.model.inbox import Item, Send
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
        return WorkflowFailed(error=_text(error))
    try:
        if error is not None:
            input, _, _ = signature.encode_call(execution.codec, error.args_, error.kwargs_)
            return WorkflowContinued(input=input)
        return WorkflowCompleted(output=main.result())
    except OutlastError as refused:
        return WorkflowFailed(error=str(refused))


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
    match error:
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
        case WorkflowFailed(error=error):
            outcome = ChildFailedEvent(child_run_id=run.id, error=error, parent_uid=asked_by)
        case WorkflowCancelled(reason=reason):
            error = f"cancelled: {reason}"
            outcome = ChildFailedEvent(child_run_id=run.id, error=error, parent_uid=asked_by)
        case _:
            raise AssertionError(f"{end} is not the end of a run")
    kind = "child.completed" if isinstance(outcome, ChildCompleted) else "child.failed"
    item = Item(kind=kind, name=run.id, id=f"end of {run.uid}", data=Raw(to_json(outcome)))
    return Send(run_id=run.parent or "", item=item)


def child_cancellations(execution: Execution) -> list[Send]:
    """The requests of a run that ends to cancel its children."""
    return [
        child.cancel("its parent has ended")
        for child in execution.open.values()
        if isinstance(child, ChildRun) and child.parent_close is ParentClose.CANCEL
    ]
