"""What a record promises of a run's end, and of one that has none yet: I13, I24."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from outlast.model.payloads import (
    ChildCompleted,
    ChildFailedEvent,
    ChildSpawned,
    MapCompleted,
    MapFailedEvent,
    MapStarted,
    OperationAbandoned,
    Payload,
    SignalReceived,
    SignalTimeoutEvent,
    SignalWaiting,
    StepCompleted,
    StepFailedEvent,
    StepStarted,
    TimerFired,
    TimerStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
    WorkflowStarted,
)
from outlast.model.run import Run, Status
from outlast.testkit.checker.evidence import Case, Violation
from outlast.testkit.dump import RunDump


def record_tells_the_end(case: Case) -> Iterator[Violation]:
    """I13: status, result and error are those of the last event, and the first is the start."""
    for id, dumped in case.final.runs.items():
        payloads, run = [payload for _, payload in case.typed_events(id)], dumped.run
        if len(payloads) < len(dumped.events) or not payloads:
            continue
        starts = [payload for payload in payloads if isinstance(payload, WorkflowStarted)]
        if len(starts) != 1 or payloads[0] is not starts[0]:
            yield Violation("I13", id, f"it was started {len(starts)} times")
        elif starts[0].workflow_name != run.workflow:
            message = f"its history is of {starts[0].workflow_name!r}, its record {run.workflow!r}"
            yield Violation("I13", id, message)
        wanted = _status(payloads[-1])
        if (wanted is not None or run.status.terminal) and run.status is not wanted:
            yield Violation("I13", id, f"it is {run.status}, and its history says {wanted}")
        elif wanted is not None and not _same_outcome(run, payloads[-1]):
            message = f"its record has {run.result!r}, {run.error!r}, its history {payloads[-1]}"
            yield Violation("I13", id, message)


def _status(last: Payload) -> Status | None:
    match last:
        case WorkflowCompleted():
            return Status.COMPLETED
        case WorkflowFailed():
            return Status.FAILED
        case WorkflowCancelled():
            return Status.CANCELLED
    return None


def _same_outcome(run: Run, last: Payload) -> bool:
    match last:
        case WorkflowCompleted(output=output):
            return bytes(run.result or b"null") == bytes(output or b"null")
        case WorkflowFailed(error=text) | WorkflowCancelled(reason=text):
            return run.error == text
    return True


def nothing_is_forgotten(case: Case) -> Iterator[Violation]:
    """I24: when the system is idle, each run that has not ended waits for a message or a time to come."""
    if not case.evidence.settled:
        return
    for id, dumped in case.final.runs.items():
        if not dumped.run.status.terminal:
            for problem in _forgotten(case, dumped):
                yield Violation("I24", id, problem)


def _forgotten(case: Case, dumped: RunDump) -> Iterator[str]:
    run = dumped.run
    if run.owner is not None:
        yield f"it rests and is still claimed by {run.owner!r}"
    if run.status in (Status.PENDING, Status.RUNNING):
        yield f"it is {run.status}, and no worker continues it"
    if run.runnable_at is not None and run.runnable_at <= case.final.at:
        yield f"it could go on since {run.runnable_at}"
    if run.status is Status.PAUSED or run.is_parked:
        return
    if run.wait_kind in ("timer", "retry") and run.runnable_at is None:
        yield "it waits for a moment at which nothing wakes it"
    queued = {task.step for task in case.final.tasks if task.run_id == run.id}
    for key in _begun(case, run.id) - queued if run.wait_kind is not None else ():
        yield f"{key!r} is open, and neither runs nor waits in a queue"
    due, signals, children = _open(case, run.id)
    first = min(due, default=None)
    if first is not None and (run.runnable_at is None or run.runnable_at > first):
        yield f"it is due at {first}, and would wake at {run.runnable_at}"
    for item in dumped.inbox:
        if item.kind == "signal" and item.name in signals:
            yield f"it waits for signal {item.name!r}, which is in its inbox"
    for child_id in children:
        child = case.final.runs.get(child_id)
        if child is not None and child.run.parent == run.id and child.run.status.terminal:
            yield f"it waits for {child_id!r}, which is {child.run.status}"


def _begun(case: Case, id: str) -> set[str]:
    """The steps and maps that have started, and have neither ended nor wait for another attempt."""
    found: set[str] = set()
    for event, payload in case.typed_events(id):
        match payload:
            case StepStarted() | MapStarted():
                found.add(event.step_name)
            case (
                StepCompleted()
                | StepFailedEvent()
                | MapCompleted()
                | MapFailedEvent()
                | OperationAbandoned()
            ):
                found.discard(event.step_name)
    return found


def _open(case: Case, id: str) -> tuple[list[datetime], set[str], list[str]]:
    """When it is due, for which signals it waits, and for which children."""
    due: dict[str, datetime | None] = {}
    signals: dict[str, str] = {}
    children: dict[str, str] = {}
    for event, payload in case.typed_events(id):
        key = event.step_name
        match payload:
            case TimerStarted(fire_at=when):
                due[key] = when
            case SignalWaiting(signal_name=name, timeout_at=when):
                due[key], signals[key] = when, name
            case StepFailedEvent(will_retry=True, retry_at=when):
                due[key] = when
            case ChildSpawned(child_run_id=child_id):
                children[key] = child_id
            case OperationAbandoned(awaited=True):
                pass
            case _ if isinstance(payload, _ANSWERS):
                for waits in (due, signals, children):
                    waits.pop(key, None)
    return (
        [when for when in due.values() if when is not None],
        set(signals.values()),
        [*children.values()],
    )


_ANSWERS = (
    TimerFired,
    SignalReceived,
    SignalTimeoutEvent,
    StepStarted,
    StepFailedEvent,
    StepCompleted,
    ChildCompleted,
    ChildFailedEvent,
    OperationAbandoned,
)
