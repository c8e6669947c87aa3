"""How a run has ended, and what it tells others then, as pure functions of its execution."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Raw

from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.replay.error_text import text_of, told
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.source_location import at_error
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
"""What asyncio says of an awaitable that is not its own."""


def ending(execution: Execution) -> Payload | None:
    """How the run has ended, or None while it goes on."""
    main = execution.main
    if main is None or not main.done() or not execution.closing.over:
        return None
    if main.cancelled():
        return WorkflowCancelled(reason=execution.cancel_reason or "the workflow cancelled itself")
    error, signature = main.exception(), execution.workflow.signature
    if isinstance(error, asyncio.CancelledError):
        return WorkflowCancelled(reason=execution.cancel_reason or text_of(error))
    if error is not None and not isinstance(error, ContinueAsNew):
        return WorkflowFailed(error=_told(error))
    try:
        if error is not None:
            input, _, _ = signature.encode_call(execution.codec, error.args_, error.kwargs_)
            return WorkflowContinued(input=input)
        return WorkflowCompleted(output=main.result())
    except OutlastError as refused:
        return WorkflowFailed(error=str(refused))


def _told(error: BaseException) -> str:
    """An error in a line; those of a group one after the other."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(inner) for inner in error.exceptions)
    if isinstance(error, RuntimeError) and any(text in text_of(error) for text in FOREIGN):
        return (
            "RuntimeError: workflow code awaits what is attached to a different loop, or to none"
            f"{at_error(error)}: its result would differ in a replay. Put that into a step and "
            "await the step"
        )
    return text_of(error) if isinstance(error, OutlastError) else told(error)


def failed_at(execution: Execution) -> str | None:
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


def farewells(execution: Execution, run: Run, end: Payload) -> list[Send]:
    """What a run that ends tells others: its children that it no longer waits, its parent how it
    went."""
    sends = cancels(execution)
    if run.parent is not None:
        asked_by = "" if execution.started is None else execution.started.parent_uid
        sends.append(child_outcome(run, end, asked_by))
    return sends


def parent_uid_in(history: Sequence[Event]) -> str:
    """The life of its parent that a child was begun for, by the first event of the child."""
    started = payload_of(history[0]) if history else None
    return started.parent_uid if isinstance(started, WorkflowStarted) else ""


def child_outcome(run: Run, end: Payload, asked_by: str) -> Send:
    """What a child's end tells its parent; `asked_by` is the life of the parent that waits for it."""
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


def cancels(execution: Execution) -> list[Send]:
    """What a run that ends tells its children: that nobody waits for them any more."""
    return [
        child.cancel("its parent has ended")
        for child in execution.open.values()
        if isinstance(child, ChildRun) and child.parent_close is ParentClose.CANCEL
    ]
