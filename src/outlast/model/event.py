"""Event: an immutable recorded fact. A run's history is its events 1, 2, 3 … without a gap.

`to_event` and `payload_of` convert between an event and its typed content (`outlast.model.payloads`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Raw, Struct

from outlast._public import public
from outlast.errors import Undecodable
from outlast.model import payloads
from outlast.model.ids import new_id
from outlast.model.json import DAMAGE, reader, to_json
from outlast.model.payloads import Payload
from outlast.model.times import EPOCH

SCHEMA_VERSION = 1
EMPTY = Raw(b"{}")


class EventType(StrEnum):
    """What happened. `Event.type` is open text, so that an older reader keeps a newer type."""

    WORKFLOW_STARTED = "workflow.started"
    WORKFLOW_COMPLETED = "workflow.completed"
    WORKFLOW_FAILED = "workflow.failed"
    WORKFLOW_CANCELLED = "workflow.cancelled"

    STEP_STARTED = "step.started"
    STEP_COMPLETED = "step.completed"
    STEP_FAILED = "step.failed"

    BRANCH_EVALUATED = "branch.evaluated"

    SIGNAL_WAITING = "signal.waiting"
    SIGNAL_RECEIVED = "signal.received"
    SIGNAL_TIMEOUT = "signal.timeout"

    CHILD_SPAWNED = "child.spawned"
    CHILD_COMPLETED = "child.completed"
    CHILD_FAILED = "child.failed"

    MAP_STARTED = "map.started"
    MAP_PROGRESS = "map.progress"
    MAP_COMPLETED = "map.completed"
    MAP_FAILED = "map.failed"

    COMPENSATION_STARTED = "compensation.started"
    COMPENSATION_COMPLETED = "compensation.completed"
    COMPENSATION_FAILED = "compensation.failed"

    TIMER_STARTED = "timer.started"
    TIMER_FIRED = "timer.fired"
    TIMER_CANCELLED = "timer.cancelled"

    SNAPSHOT = "snapshot"

    # Types that are not in the specification of the first twenty-one.
    WORKFLOW_CONTINUED = "workflow.continued"
    CANCEL_REQUESTED = "cancel.requested"
    OPERATION_ABANDONED = "operation.abandoned"
    STEP_PROGRESS = "step.progress"
    STEP_LOST = "step.lost"
    HALT_STARTED = "halt.started"
    HALT_RESUMED = "halt.resumed"
    HALT_REASSIGNED = "halt.reassigned"
    SCOPE_STARTED = "scope.started"
    SCOPE_COMPLETED = "scope.completed"
    SCOPE_FAILED = "scope.failed"
    LOOP_ITERATED = "loop.iterated"
    UPDATE_ACCEPTED = "update.accepted"
    UPDATE_COMPLETED = "update.completed"
    MESSAGE_REJECTED = "message.rejected"
    WORKFLOW_MOVED = "workflow.moved"


@public
class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One recorded fact of a run.

    `data` is plain JSON whose shape belongs to `type` (see `outlast.model.payloads`); the store does not
    interpret it. `output` is a user's value, on completion events only. `sequence` is 0 until the store
    numbers the event, and `token` is the claim under which it was written. Unknown fields are ignored and
    missing ones get their default, so that `version` can grow. An event cannot be part of a reference
    cycle (`gc=False`), so a long history costs no garbage collection.
    """

    type: str
    run_id: str
    id: str = msgspec.field(default_factory=new_id)
    sequence: int = 0
    version: int = SCHEMA_VERSION
    step_name: str = ""
    data: Raw = EMPTY
    output: Raw | None = None
    timestamp: datetime = EPOCH
    metadata: dict[str, str] = {}
    token: int = 0


PAYLOADS: dict[str, type[Payload]] = {
    EventType.WORKFLOW_STARTED: payloads.WorkflowStarted,
    EventType.WORKFLOW_COMPLETED: payloads.WorkflowCompleted,
    EventType.WORKFLOW_FAILED: payloads.WorkflowFailed,
    EventType.WORKFLOW_CANCELLED: payloads.WorkflowCancelled,
    EventType.STEP_STARTED: payloads.StepStarted,
    EventType.STEP_COMPLETED: payloads.StepCompleted,
    EventType.STEP_FAILED: payloads.StepFailedEvent,
    EventType.BRANCH_EVALUATED: payloads.BranchEvaluated,
    EventType.SIGNAL_WAITING: payloads.SignalWaiting,
    EventType.SIGNAL_RECEIVED: payloads.SignalReceived,
    EventType.SIGNAL_TIMEOUT: payloads.SignalTimeoutEvent,
    EventType.CHILD_SPAWNED: payloads.ChildSpawned,
    EventType.CHILD_COMPLETED: payloads.ChildCompleted,
    EventType.CHILD_FAILED: payloads.ChildFailedEvent,
    EventType.MAP_STARTED: payloads.MapStarted,
    EventType.MAP_PROGRESS: payloads.MapProgress,
    EventType.MAP_COMPLETED: payloads.MapCompleted,
    EventType.MAP_FAILED: payloads.MapFailedEvent,
    EventType.COMPENSATION_STARTED: payloads.CompensationStarted,
    EventType.COMPENSATION_COMPLETED: payloads.CompensationCompleted,
    EventType.COMPENSATION_FAILED: payloads.CompensationFailed,
    EventType.TIMER_STARTED: payloads.TimerStarted,
    EventType.TIMER_FIRED: payloads.TimerFired,
    EventType.TIMER_CANCELLED: payloads.TimerCancelled,
    EventType.SNAPSHOT: payloads.SnapshotTaken,
    EventType.WORKFLOW_CONTINUED: payloads.WorkflowContinued,
    EventType.CANCEL_REQUESTED: payloads.CancelRequested,
    EventType.OPERATION_ABANDONED: payloads.OperationAbandoned,
    EventType.STEP_PROGRESS: payloads.StepProgress,
    EventType.STEP_LOST: payloads.StepLost,
    EventType.HALT_STARTED: payloads.HaltStarted,
    EventType.HALT_RESUMED: payloads.HaltResumed,
    EventType.HALT_REASSIGNED: payloads.HaltReassigned,
    EventType.SCOPE_STARTED: payloads.ScopeStarted,
    EventType.SCOPE_COMPLETED: payloads.ScopeCompleted,
    EventType.SCOPE_FAILED: payloads.ScopeFailedEvent,
    EventType.LOOP_ITERATED: payloads.LoopIterated,
    EventType.UPDATE_ACCEPTED: payloads.UpdateAccepted,
    EventType.UPDATE_COMPLETED: payloads.UpdateCompleted,
    EventType.MESSAGE_REJECTED: payloads.MessageRejected,
    EventType.WORKFLOW_MOVED: payloads.WorkflowMoved,
}
_TYPE_OF: dict[type[Payload], str] = {payload: str(type) for type, payload in PAYLOADS.items()}


def type_of(payload: Payload) -> str:
    """The type of the event that records `payload`."""
    return _TYPE_OF[type(payload)]


def to_event(
    payload: Payload,
    *,
    run_id: str,
    step_name: str = "",
    output: Raw | None = None,
    timestamp: datetime | None = None,
    metadata: dict[str, str] | None = None,
) -> Event:
    """The event that records `payload`."""
    return Event(
        type=_TYPE_OF[type(payload)],
        run_id=run_id,
        step_name=step_name,
        data=Raw(to_json(payload)),
        output=output,
        timestamp=EPOCH if timestamp is None else timestamp,
        metadata=metadata or {},
    )


def payload_of(event: Event) -> Payload:
    """The typed content of `event`. Raises `Undecodable` for an unknown type or damaged data."""
    read = _READERS.get(event.type) or _reader_of(event)
    try:
        return read(event.data)
    except DAMAGE as error:
        raise Undecodable(
            f"event {event.sequence} of run {event.run_id!r} ({event.type}) is not a valid "
            f"{PAYLOADS[event.type].__name__}: {error}"
        ) from error


_READERS: dict[str, Callable[[bytes | Raw], Payload]] = {}
"""The decoder for each type of event, created when the first event of that type is read."""


def _reader_of(event: Event) -> Callable[[bytes | Raw], Payload]:
    payload = PAYLOADS.get(event.type)
    if payload is None:
        raise Undecodable(
            f"event {event.sequence} of run {event.run_id!r} has the unknown type {event.type!r}: "
            "a newer version of outlast may have written it. Upgrade this process"
        )
    read = _READERS[event.type] = reader(payload)
    return read
