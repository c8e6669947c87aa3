"""Outline: what a run has done and is doing, as a tree computed from its history.

A part is an operation of the workflow's code: a step with its attempts, a map, a child, a wait. Its key
says in which task, scope, loop or compensation it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model import payloads as events
from outlast.model.asks import ask_id
from outlast.model.event import Event, EventType, payload_of
from outlast.model.payloads import Payload, chain_text

OPEN = frozenset({"running", "waiting", "retrying"})
_OUTER = re.compile(r"(\d+|scope:[^/]+|loop:[^/]+)/")
_RUN_ITSELF = ("workflow.", "cancel.", "snapshot")


@dataclass
class Attempt:
    """One attempt of a step."""

    number: int
    started_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    frames: list[str] = field(default_factory=list)


@dataclass
class Part:
    """An operation and its outcome. `status` is one of running, waiting, retrying, completed, failed,
    abandoned."""

    key: str
    kind: str
    name: str
    status: str = "running"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    until: datetime | None = None
    input: Raw | None = None
    output: Raw | None = None
    error: str | None = None
    note: str = ""
    to: str = ""
    ask_id: str = ""
    child_id: str | None = None
    frames: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether the operation has no outcome yet."""
        return self.status in OPEN

    def walk(self) -> Iterator[Part]:
        """This part and its descendants."""
        yield self
        for part in self.parts:
            yield from part.walk()


def outline(history: Iterable[Event], *, ended: bool = False) -> list[Part]:
    """The top-level parts of a run, in the order of their intents. If the run has `ended`, open parts are
    abandoned."""
    tree = _Tree()
    for event in history:
        if event.type.startswith(_RUN_ITSELF):
            continue
        try:
            payload = payload_of(event)
        except Undecodable as error:
            part = tree.part(event, event.type.partition(".")[0])
            part.status, part.error = "failed", str(error)
        else:
            _apply(tree, event, payload)
    for part in tree.top:
        _close(part, ended=ended)
    return tree.top


def failure_text(history: Sequence[Event]) -> str:
    """Where a failed run has failed, and from which errors, by its last event; empty if it has not failed."""
    return chain_text(_failure(history))


def failure_place(history: Sequence[Event]) -> str:
    """The line of user code at which the error of a failed run was first raised; empty if that is not known."""
    return next((one.frames[-1] for one in reversed(_failure(history)) if one.frames), "")


def _failure(history: Sequence[Event]) -> list[events.ErrorDetails]:
    if not history or history[-1].type != EventType.WORKFLOW_FAILED:
        return []
    last = payload_of(history[-1])
    return last.details if isinstance(last, events.WorkflowFailed) else []


def _close(part: Part, *, ended: bool) -> None:
    """Derive the status of tasks and loops from their parts, and abandon what is open in an ended run."""
    for below in part.parts:
        _close(below, ended=ended)
    if part.kind in ("task", "loop") and part.parts and part.is_open:
        if not any(below.is_open for below in part.parts):
            part.status = part.parts[-1].status
            part.ended_at = max((one.ended_at for one in part.parts if one.ended_at), default=None)
    if ended and part.is_open:
        part.status = "abandoned"


class _Tree:
    def __init__(self) -> None:
        self.top: list[Part] = []
        self._by_key: dict[str, Part] = {}

    def part(self, event: Event, kind: str) -> Part:
        """The part of an event, created if it is new."""
        part = self._by_key.get(event.step_name)
        if part is None:
            part = self._add(event.step_name, kind, event.timestamp)
        return part

    def _add(self, key: str, kind: str, at: datetime) -> Part:
        if key.startswith("undo/"):
            outer, rest = "undo", key.removeprefix("undo/")
        else:
            outer, rest = _split_key(key)
        siblings = self.top
        if outer:
            parent = self._by_key.get(outer)
            if parent is None:
                parent = self._add(outer, _kind_of(outer), at)
            siblings = parent.parts
        part = Part(key=key, kind=kind, name=rest, started_at=at)
        self._by_key[key] = part
        siblings.append(part)
        return part


def _split_key(key: str) -> tuple[str, str]:
    """The key of the enclosing part, and the name within it."""
    at = 0
    while match := _OUTER.match(key, at):
        at = match.end()
    return key[: max(at - 1, 0)], key[at:]


def _kind_of(outer: str) -> str:
    if outer == "undo":
        return "compensation"
    name = outer.rpartition("/")[2]
    return name.partition(":")[0] if ":" in name else "task"


def _apply(tree: _Tree, event: Event, payload: Payload) -> None:
    """Apply an event to its part."""
    kind = event.type.partition(".")[0]
    if event.type == EventType.OPERATION_ABANDONED:
        part = tree.part(event, "operation")
        assert isinstance(payload, events.OperationAbandoned)
        if payload.awaited:
            part.note = "abandoned by the code, still awaited"
        else:
            part.status, part.ended_at = "abandoned", event.timestamp
        return
    if isinstance(payload, events.UpdateAccepted | events.UpdateCompleted):
        _apply_update(tree, event, payload)
        return
    if isinstance(payload, events.MessageRejected) and not event.step_name:
        event = msgspec.structs.replace(event, step_name=f"{payload.kind}:{event.sequence}")
        part = tree.part(event, payload.kind)
        part.name = payload.name
        _end(part, event, "failed", error=payload.error)
        return
    part = tree.part(event, kind)
    match payload:
        case events.StepStarted(attempt=number, input=input):
            part.status, part.until = "running", None
            part.input = part.input if input is None else input
            part.attempts.append(Attempt(number, event.timestamp))
        case events.StepCompleted():
            _end(part, event, "completed", output=event.output)
        case events.StepFailedEvent(
            error=error, error_type=kind_of_error, will_retry=again, stopped=cut
        ):
            message = f"{kind_of_error}: {error}" if kind_of_error else error
            _end(part, event, "failed", error=message)
            if part.attempts:
                part.attempts[-1].frames = payload.frames
            if again or cut:
                part.status, part.until, part.ended_at = "retrying", payload.retry_at, None
        case events.MapStarted(item_count=items):
            part.note = f"0 of {items}"
        case events.MapProgress():
            _apply_progress(part, payload)
        case events.MapCompleted(results=results):
            _end(part, event, "completed", output=results)
        case events.MapFailedEvent(error=error, failed_index=index):
            _end(part, event, "failed", error=f"item {index}: {error}")
            part.frames = _frames(payload.details)
        case events.SignalWaiting(signal_name=name, timeout_at=until):
            part.name, part.status, part.until = name, "waiting", until
        case events.SignalReceived(signal_name=name, payload=data):
            part.name = name
            _end(part, event, "completed", output=data)
        case events.SignalTimeoutEvent():
            _end(part, event, "failed", error="the signal did not arrive before its timeout")
        case events.MessageRejected(kind=kind, error=error):
            part.rejected.append(f"{kind} rejected: {error}")
        case events.TimerStarted(fire_at=until):
            part.status, part.until = "waiting", until
        case events.TimerCancelled():
            _end(part, event, "abandoned")
        case events.ChildSpawned(child_run_id=child, workflow_name=name, input=input):
            part.status, part.child_id, part.name, part.input = "waiting", child, name, input
        case events.ChildCompleted(output=output):
            _end(part, event, "completed", output=output)
        case events.ChildFailedEvent(error=error):
            _end(part, event, "failed", error=error)
            part.frames = _frames(payload.details)
        case events.HaltStarted(data=data, title=title, name=name, to=to, due_at=until):
            part.status, part.input, part.until, part.to = "waiting", data, until, to
            part.ask_id = ask_id(event.run_id, payload.id)
            part.name = title or name or part.name
        case events.HaltReassigned(to=to):
            part.note = f"escalated from {part.to} to {to}" if part.to else f"escalated to {to}"
            part.to = to
        case events.HaltResumed(value=value, by=by):
            part.note = f"answered by {by}" if by else part.note
            _end(part, event, "completed", output=value)
        case events.BranchEvaluated(branch_name=name, choice=choice):
            part.name, part.note = name, choice
            _end(part, event, "completed")
        case events.LoopIterated(iteration=iteration):
            part.note = f"{iteration} done"
            part.kind = "loop"
        case events.ScopeCompleted(output=output):
            _end(part, event, "completed", output=output)
        case events.ScopeFailedEvent(error=error):
            _end(part, event, "failed", error=error)
            part.frames = _frames(payload.details)
        case events.CompensationStarted(trigger_step=trigger, steps_to_undo=steps, unknown=unknown):
            part.note = f"{len(steps)} to undo" + (f" because of {trigger}" if trigger else "")
            if unknown:
                part.note += f", outcome unknown: {', '.join(unknown)}"
        case events.CompensationFailed(failed_step=step, error=error):
            _end(part, event, "failed", error=f"{step}: {error}")
        case events.TimerFired() | events.CompensationCompleted():
            _end(part, event, "completed")


def _frames(details: list[events.ErrorDetails]) -> list[str]:
    return details[0].frames if details else []


def _end(
    part: Part,
    event: Event,
    status: str,
    *,
    output: Raw | None = None,
    error: str | None = None,
) -> None:
    part.status, part.ended_at, part.until = status, event.timestamp, None
    part.output = output
    part.error = error
    if part.attempts:
        part.attempts[-1].ended_at = event.timestamp
        part.attempts[-1].error = error


def _apply_progress(part: Part, payload: events.MapProgress) -> None:
    done, _, rest = part.note.partition(" of ")
    items = rest.partition(",")[0]
    part.note = f"{int(done or 0) + len(payload.completed)} of {items}"
    failed = len(payload.failed) + int((re.search(r", (\d+) failed", rest) or [0, 0])[1])
    part.note += f", {failed} failed" if failed else ""


def _apply_update(
    tree: _Tree, event: Event, payload: events.UpdateAccepted | events.UpdateCompleted
) -> None:
    about = msgspec.structs.replace(event, step_name=f"update:{payload.update_id}")
    part = tree.part(about, "update")
    if isinstance(payload, events.UpdateAccepted):
        part.name, part.input = payload.name, payload.input
    else:
        status = "completed" if payload.error is None else "failed"
        _end(part, event, status, output=payload.output, error=payload.error)
