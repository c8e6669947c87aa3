"""Small words to tell by hand what an engine wrote: events by what they say."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Raw
from msgspec.structs import replace

from outlast.model import Commit, Committed, Event, Item, Receipt, Run, Send, Status
from outlast.model.event import to_event
from outlast.model.payloads import (
    ChildCompleted,
    ChildSpawned,
    CompensationCompleted,
    CompensationStarted,
    MapCompleted,
    MapProgress,
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
from outlast.testing.virtual_clock import START
from outlast.testkit.checker import Dump, Effect, Evidence, Fate, Op
from outlast.testkit.dump import RunDump

Line = Payload | tuple[Payload, str] | tuple[Payload, str, float]
"""What an event says, under which key, and how many seconds after the start."""

BEGUN = WorkflowStarted(workflow_name="w", version="1")
OVER = WorkflowCompleted(output=Raw(b"1"))
BROKEN = WorkflowFailed(error="full")
GONE = WorkflowCancelled(reason="enough")
DONE = StepCompleted(duration_ns=1)


def at(seconds: float) -> datetime:
    """So long after the start."""
    return START + timedelta(seconds=seconds)


def started(attempt: int = 1, *, alone: bool = False) -> StepStarted:
    return StepStarted(alone=alone, attempt=attempt)


def failed(attempt: int = 1, *, again: float | None = None) -> StepFailedEvent:
    """An attempt that failed, for good or to be tried again at a time."""
    retry_at = None if again is None else at(again)
    return StepFailedEvent(
        error="no", attempt=attempt, will_retry=again is not None, retry_at=retry_at
    )


def timer(seconds: float) -> TimerStarted:
    return TimerStarted(fire_at=at(seconds))


def waiting(name: str = "go", timeout: float | None = None) -> SignalWaiting:
    return SignalWaiting(signal_name=name, timeout_at=None if timeout is None else at(timeout))


def received(value: bytes = b"1", name: str = "go") -> SignalReceived:
    return SignalReceived(signal_name=name, payload=Raw(value))


def mapped(items: int) -> MapStarted:
    return MapStarted(item_count=items)


def progress(started: int, **done: int) -> MapProgress:
    """Items that are done, as ``_0=7``: item 0 gave 7."""
    return MapProgress(
        started=started,
        completed=[int(name[1:]) for name in done],
        results=[Raw(str(value).encode()) for value in done.values()],
    )


def collected(results: bytes) -> MapCompleted:
    return MapCompleted(results=Raw(results))


def undo(*steps: str) -> CompensationStarted:
    return CompensationStarted(trigger_step="", steps_to_undo=list(steps))


def child(id: str = "r~c", policy: str = "") -> ChildSpawned:
    return ChildSpawned(child_run_id=id, workflow_name="w", parent_close=policy)


def lived(*lines: Line, id: str = "r", begun: bool = True, **fields: Any) -> RunDump:
    """A run with this history, and a record that follows from it unless a field says otherwise."""
    events = [_event(n, line, id) for n, line in enumerate([BEGUN, *lines] if begun else lines, 1)]
    record: dict[str, Any] = {"workflow": "w", "status": Status.WAITING, "sequence": len(events)}
    match lines[-1] if lines else None:
        case WorkflowCompleted(output=output):
            record |= {"status": Status.COMPLETED, "result": output, "ended_at": START}
        case WorkflowFailed(error=error):
            record |= {"status": Status.FAILED, "error": error, "ended_at": START}
        case WorkflowCancelled(reason=reason):
            record |= {"status": Status.CANCELLED, "error": reason, "ended_at": START}
    inbox = fields.pop("inbox", [])
    run = Run(**{"id": id, "uid": f"uid of {id}", **record, **fields})
    return RunDump(run=run, events=events, inbox=inbox)


def left(*lives: RunDump, log: Log | None = None, settled: bool = True) -> Evidence:
    """These runs at the end, with what was done and asked for."""
    log = log or Log()
    final = Dump(at=at(0), runs={one.run.id: one for one in lives})
    return Evidence(
        dumps=[final], ops=log.ops, effects=log.effects, complete=False, settled=settled
    )


class Log:
    """What a process did to run `r`, in order; each thing ends before the next begins."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.effects: list[Effect] = []
        self._tick = 0

    def commit(self, *lines: Line, fate: Fate = Fate.OK, **fields: Any) -> Log:
        """A commit of run `r` in the name of a claim; the first event has the given `sequence`."""
        first = fields.pop("sequence", 1)
        claim = {"uid": "uid of r", "token": 1, "expected": first - 1}
        events = tuple(_event(first + n, line, "r") for n, line in enumerate(lines))
        commit = Commit(**{"run_id": "r", **claim, **fields}, events=events)
        committed = Committed(
            run_id="r", uid="uid of r", sequence=first + len(lines) - 1, revision=1, token=1
        )
        return self._op("commit", fate, commit, committed if fate is Fate.OK else None)

    def send(self, number: int, value: bytes = b"1", name: str = "go") -> Log:
        """A signal for run `r`, and the number it got."""
        item = Item(kind="signal", name=name, id=f"item {number}", data=Raw(value))
        return self._op("send", Fate.OK, Send(run_id="r", item=item), Receipt(number, False))

    def body(self, step: str, attempt: int = 1, *, ends: bool = True, stale: bool = False) -> Log:
        """A body ran."""
        begun, over = self._moment()
        effect = Effect(
            run_id="r",
            step=step,
            begun=begun,
            ended=over if ends else None,
            attempt=attempt,
            uid="uid of r",
            stale=stale,
        )
        self.effects.append(effect)
        return self

    def _op(self, name: str, fate: Fate, value: Any, result: object) -> Log:
        begun, over = self._moment()
        self.ops.append(
            Op(name=name, fate=fate, begun=begun, ended=over, value=value, result=result)
        )
        return self

    def _moment(self) -> tuple[int, int]:
        self._tick += 2
        return self._tick - 1, self._tick


def _event(sequence: int, line: Line, run_id: str) -> Event:
    payload, key, seconds = line, "", 0.0
    if isinstance(line, tuple):
        payload, key = line[0], line[1]
        seconds = line[2] if len(line) == 3 else 0.0
    assert isinstance(payload, Payload)
    event = to_event(payload, run_id=run_id, step_name=key, timestamp=at(seconds))
    return replace(event, id=f"{run_id} {sequence}", sequence=sequence)


FIRED, LATE, NO_MORE = TimerFired(), SignalTimeoutEvent(signal_name="go"), OperationAbandoned()
DID_A_AND_B = ((started(), "a"), (DONE, "a"), (started(), "b"), (DONE, "b"))
UNDID_B = ((started(), "undo/b"), (DONE, "undo/b"))
UNDID_A = ((started(), "undo/a"), (DONE, "undo/a"))
ALL_UNDONE = (CompensationCompleted(steps_compensated=["b", "a"]), "undo")
CHILD_IS_DONE = ChildCompleted(child_run_id="r~c", output=OVER.output)
THE_CHILD = lived(OVER, id="r~c", parent="r")
