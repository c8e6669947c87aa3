"""Payloads: the shape of `Event.data` for each type of event; `outlast.model.event` encodes and decodes them.

A payload class has the name of its event type (`StepStarted` for ``step.started``). Those that would
share the name of an exception in `outlast.errors` have the suffix `Event` (`StepFailedEvent` is recorded,
`StepFailed` is raised); the others go without, because they are unambiguous and used everywhere.

Field names are the recorded format and never change meaning. A field with a default is left out when it
has it. User values inside are raw JSON, encoded by a codec at the edge: replay of the record, cancel and
delete need no user type.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Raw, Struct

from outlast.model.queue_policy import QueueOptions

NULL = Raw(b"null")


class Payload(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The base of all payloads."""


class ErrorDetails(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One error of a chain, as data: its class, its text, and the lines of user code in its traceback, the
    innermost last. `link` is its relation to the error before it in the chain: ``cause`` (``raise … from``),
    ``context`` (raised while that one was handled), ``member`` (of a group)."""

    type: str
    message: str = ""
    frames: list[str] = []
    link: str = ""


_LINKS = {
    "cause": "\nwhich was the direct cause of:\n",
    "context": "\nand while that was handled:\n",
    "member": "\nin the group:\n",
}


def chain_text(chain: Sequence[ErrorDetails]) -> str:
    """A chain of errors as text, in the order of Python's tracebacks: the origin first, the error that was raised
    last."""
    parts: list[str] = []
    for one in reversed(chain):
        parts += [f"  at {frame}" for frame in one.frames]
        parts.append(f"{one.type}: {one.message}" if one.message else one.type)
        if one.link:
            parts.append(_LINKS.get(one.link, ""))
    return "\n".join(parts)


class WorkflowStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    workflow_name: str
    # An int or a text; stored as given.
    version: int | str
    input: Raw = NULL
    # The seed of random numbers, if not the run's own uid: a fork has that of its origin.
    seed: str = ""
    # The input of the first life, if this one continues another: a repeated start compares with it.
    origin: Raw | None = None
    # Of a retried run: the uids of its earlier lives, each with the last event taken over from it.
    lineage: list[tuple[str, int]] = []
    # In which queue the run waits before it starts.
    place: QueueOptions | None = None
    # Whether an earlier life had this id: if so, the ids of its children contain the life.
    later: bool = False
    # Of a child: the uid of the parent's life that started it.
    parent_uid: str = ""
    # Answers to updates that earlier lives gave, each the data of an `update.completed`, for callers who
    # have not read them yet.
    answers: list[Raw] = []
    # Of a retried run: children by key that earlier lives started after the point of the retry, and that
    # run or have completed. The same call gets the same child.
    adopts: dict[str, ChildSpawned] = {}
    # Of a retried run: steps by key that have no result, with the life that started them and the input. The same
    # call has the same idempotency key.
    asked: dict[str, tuple[str, Raw]] = {}


class WorkflowCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    output: Raw | None = None


class WorkflowFailed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    error: str
    details: list[ErrorDetails] = []


class WorkflowCancelled(Payload, frozen=True, kw_only=True, omit_defaults=True):
    reason: str


class StepStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt may start. `alone`: after crashes of its process, with no other suspect beside it."""

    attempt: int = 0
    input: Raw | None = None
    alone: bool = False


class StepCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    duration_ns: int


class StepFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt has failed. `stopped`: it was interrupted by the shutdown of its process, and does not
    count. `frames` are the lines of user code in the traceback, the innermost last; `causes` the errors that it
    was raised from. `kind` is the class in the step's `raises` that it is an instance of, and `raised` its data, if it could be
    encoded."""

    error: str
    attempt: int
    will_retry: bool
    error_type: str = ""
    retry_at: datetime | None = None
    stopped: bool = False
    frames: list[str] = []
    causes: list[ErrorDetails] = []
    kind: str = ""
    raised: list[Raw] = []

    @property
    def details(self) -> list[ErrorDetails]:
        """The error and its causes as one chain."""
        return [
            ErrorDetails(type=self.error_type, message=self.error, frames=self.frames),
            *self.causes,
        ]


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
    # What happens to the child when its parent ends first; empty for cancel.
    parent_close: str = ""
    place: QueueOptions | None = None


class ChildCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    child_run_id: str
    output: Raw | None = None
    # The uid of the parent's life that started the child.
    parent_uid: str = ""


class ChildFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    child_run_id: str
    error: str
    parent_uid: str = ""
    details: list[ErrorDetails] = []


class MapStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    item_count: int


class MapProgress(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What one flush of a map adds: up to which item attempts may have started, which are completed with
    which results, which have failed (`details`: with which errors, in the same order). `interrupted`: the
    previous process crashed. `running`: the items that are awaited, once no more are started."""

    started: int = 0
    completed: list[int] = []
    results: list[Raw] = []
    failed: list[tuple[int, str]] = []
    details: list[list[ErrorDetails]] = []
    interrupted: bool = False
    alone: bool = False
    running: list[int] | None = None


class MapCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    results: Raw


class MapFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    failed_index: int
    error: str
    details: list[ErrorDetails] = []


class CompensationStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """Steps are undone in this order. `unknown` are steps with an unknown outcome: they are undone only
    by a compensation that accepts that."""

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
    """This life ends and the next starts, with new input."""

    input: Raw


class CancelRequested(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """`after_bug`: the run was parked, because its code had ended in a programming error."""

    reason: str
    after_bug: bool = False


class OperationAbandoned(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The code no longer awaits the operation: a cancelled timer, a step that timed out. `awaited`: it
    runs to its end, which is recorded, because it may have to be undone. `closing`: the run has failed
    before; a retry starts before that point."""

    awaited: bool = False
    closing: bool = False


class StepProgress(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """What a running attempt has reported; the next attempt can read it."""

    attempt: int
    details: Raw


class StepLost(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt was interrupted because its process lost its lease. The process is alive and reports it,
    so the attempt does not count as a crash. `survived`: the attempt continues, and has run long enough
    not to be the cause if its process crashes later."""

    attempt: int
    survived: bool = False


class HaltStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A question to a person. `id` distinguishes it from all others of its run. `schema` is the JSON schema of an
    answer; without one, any value answers it."""

    data: Raw
    id: str = ""
    name: str = ""
    title: str = ""
    to: str = ""
    due_at: datetime | None = None
    schema: Raw | None = None


class HaltResumed(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A person has answered. `id` is that of the answer, `at` is when the store received it."""

    value: Raw
    id: str = ""
    by: str = ""
    at: datetime | None = None


class HaltReassigned(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A question that was not answered in time is now to another person or group."""

    to: str


class ScopeStarted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    pass


class ScopeCompleted(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """`undoable`: something inside could still be undone, or still runs; a replay then runs it again."""

    output: Raw
    undoable: bool = False


class ScopeFailedEvent(Payload, frozen=True, kw_only=True, omit_defaults=True):
    error: str
    error_type: str = ""
    undoable: bool = False
    details: list[ErrorDetails] = []


class LoopIterated(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The state after an iteration: a replay starts from the last one before which nothing is
    `undoable`."""

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


class MessageRejected(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """A signal or an answer does not have the type that the code waits for: it is set aside, and the code
    waits on. `kind` is ``signal`` or ``answer``."""

    kind: str
    name: str
    value: Raw | None = None
    error: str = ""


class WorkflowMoved(Payload, frozen=True, kw_only=True, omit_defaults=True):
    """The run continues in another store, and is closed here. `state` is the hash of a fact with the rest
    of its state. In the tombstone, `life` is its uid."""

    moved_to: str
    state: str = ""
    life: str = ""
