"""What each type of event says: the shape of `Event.data`, read and written by `event_data`.

The names are the recorded form and never change meaning. A field marked optional is left out when
it is empty. User values inside are raw JSON, encoded by a codec at the edge; nothing here needs a
user's type to be read, so that fold, cancel and delete work on any run.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from outlast.model.queue_options import QueueOptions

NULL = Raw(b"null")


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of all payloads."""


class WorkflowStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    workflow_name: str
    # An int in the first seed, a text later: both are read, and kept as they came.
    version: int | str
    input: Raw = NULL
    # What random numbers derive from, if not from the run's own uid: a run that was planted from
    # the history of another one has the luck of that one.
    seed: str = ""
    # The input of the first life, if this one goes on from another: so that a start stays the same.
    origin: Raw | None = None
    # Of a run that is retried: the uids of its earlier lives, each with the last event from there.
    lineage: list[tuple[str, int]] = []
    # Where the run waits for its turn before it begins, if it was started in a queue.
    place: QueueOptions | None = None
    # Whether an earlier life had this id: then the ids of its children name the life.
    later: bool = False
    # Of a child: the uid of the life that asked for it.
    parent_uid: str = ""
    # Answers to updates that earlier lives gave, each the data of an `update.completed`, for callers who
    # have not read them yet.
    answers: list[Raw] = []
    # Of a run that is retried: children by key that earlier lives asked for after the point from which it
    # goes on, and that run or have completed. The same call gets the same child.
    adopts: dict[str, ChildSpawned] = {}
    # Likewise steps by key that have no result: the life that asked, and the input. The same call has the same
    # idempotency key.
    asked: dict[str, tuple[str, Raw]] = {}


class WorkflowCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    output: Raw | None = None


class WorkflowFailed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    error: str


class WorkflowCancelled(Payload, frozen=True, kw_only=True, omit_defaults=True):
    reason: str


class StepStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt may begin. `alone`: after deaths of its process, and no other suspect runs beside it."""

    attempt: int = 0
    input: Raw | None = None
    alone: bool = False


class StepCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    duration_ns: int


class StepFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt has failed. With `stopped` it was cut off in good order, because its process was
    to end: that is nobody's fault, and does not count. `frames` are the lines of the user's that the
    error came through, the innermost last."""

    error: str
    attempt: int
    will_retry: bool
    error_type: str = ""
    retry_at: datetime | None = None
    stopped: bool = False
    frames: list[str] = []


class BranchEvaluated(Payload, frozen=True, kw_only=True, omit_defaults=True):
    branch_name: str
    choice: str


class SignalWaiting(Payload, frozen=True, kw_only=True, omit_defaults=True):
    signal_name: str
    timeout_at: datetime | None = None


class SignalReceived(Payload, frozen=True, kw_only=True, omit_defaults=True):
    signal_name: str
    payload: Raw | None = None


class SignalTimeoutEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    signal_name: str


class ChildSpawned(Payload, frozen=True, kw_only=True, omit_defaults=True):
    child_run_id: str
    workflow_name: str
    input: Raw = NULL
    # What becomes of it when its parent ends first; empty for cancel.
    parent_close: str = ""
    place: QueueOptions | None = None


class ChildCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    child_run_id: str
    output: Raw | None = None
    # The life that asked, as the child knows it.
    parent_uid: str = ""


class ChildFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    child_run_id: str
    error: str
    parent_uid: str = ""


class MapStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    item_count: int


class MapProgress(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What one flush of a map adds: up to which item the bodies may have begun, which are done
    and with what, which have failed. `interrupted` says that the process before this one died.
    `running`, once nothing more begins, are the items that are awaited."""

    started: int = 0
    completed: list[int] = []
    results: list[Raw] = []
    failed: list[tuple[int, str]] = []
    interrupted: bool = False
    alone: bool = False
    running: list[int] | None = None


class MapCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    results: Raw


class MapFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    failed_index: int
    error: str


class CompensationStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What was done is undone, in this order. `unknown` are the steps of which it is not known
    whether they were done: they are undone only by a compensation for that."""

    trigger_step: str
    steps_to_undo: list[str]
    unknown: list[str] = []


class CompensationCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    steps_compensated: list[str]


class CompensationFailed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    failed_step: str
    error: str


class TimerStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    fire_at: datetime


class TimerFired(Payload, frozen=True, kw_only=True, omit_defaults=True):
    pass


class TimerCancelled(Payload, frozen=True, kw_only=True, omit_defaults=True):
    pass


class SnapshotTaken(Payload, frozen=True, kw_only=True, omit_defaults=True):
    state: Raw = NULL


class WorkflowContinued(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """This life ends and the next begins, with new input."""

    input: Raw


class CancelRequested(Payload, frozen=True, kw_only=True, omit_defaults=True):
    reason: str


class OperationAbandoned(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The code no longer wants the answer: a timer that was cancelled, a step that timed out. With
    `awaited` it goes on to its end all the same, which is recorded, because it may have to be undone.
    With `closing` the run has failed before: a retry begins before that."""

    awaited: bool = False
    closing: bool = False


class StepProgress(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What a running attempt has reported; the next attempt can read it."""

    attempt: int
    details: Raw


class StepLost(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt was cut off because its process lost its lease, and that process lives: it says so
    itself. So the attempt has killed nobody. With `survived` it runs on, and has outlived the time in which a
    step that kills its process does so: should that process die, it was not of this attempt."""

    attempt: int
    survived: bool = False


class HaltStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    data: Raw


class HaltResumed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    value: Raw


class ScopeStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ScopeCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """`undoable` says that something inside could still be undone, or still runs: a replay then runs
    it again."""

    output: Raw
    undoable: bool = False


class ScopeFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    error: str
    error_type: str = ""
    undoable: bool = False


class LoopIterated(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The state after a finished iteration: a replay begins from the last one before which nothing
    is `undoable`."""

    iteration: int
    state: Raw
    undoable: bool = False


class UpdateAccepted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    update_id: str
    name: str
    input: Raw


class UpdateCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    update_id: str
    output: Raw | None = None
    error: str | None = None


class WorkflowMoved(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The run goes on in another store, and is closed here. `state` is the hash of a fact: what has
    to be known of it besides what is kept. In the record that is left of it, `life` is its uid."""

    moved_to: str
    state: str = ""
    life: str = ""
