"""Event: an immutable recorded fact. A run's history is its events 1, 2, 3 … without a gap."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import Raw, Struct

from outlast.model.ids import new_id
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

    # Ours, beyond the seeds' twenty-one.
    WORKFLOW_CONTINUED = "workflow.continued"
    CANCEL_REQUESTED = "cancel.requested"
    OPERATION_ABANDONED = "operation.abandoned"
    STEP_PROGRESS = "step.progress"
    STEP_LOST = "step.lost"
    HALT_STARTED = "halt.started"
    HALT_RESUMED = "halt.resumed"
    SCOPE_STARTED = "scope.started"
    SCOPE_COMPLETED = "scope.completed"
    SCOPE_FAILED = "scope.failed"
    LOOP_ITERATED = "loop.iterated"
    UPDATE_ACCEPTED = "update.accepted"
    UPDATE_COMPLETED = "update.completed"
    WORKFLOW_MOVED = "workflow.moved"


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One recorded fact of a run.

    `data` is plain JSON whose shape belongs to `type` (see `outlast.model.payloads`); the store
    never looks inside. `output` is a user's value, on completion events only. `sequence` is 0
    until the store has numbered the event, and `token` is the claim under which it was written.
    Unknown fields are ignored and missing ones get their default, so that `version` can grow.
    No cycle can go through one (`gc=False`), so that a long history costs no garbage collection.
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
