"""Outline: what a run has done and is doing, as a tree read off its history.

A part is something that the code asked for: a step with its attempts, a map, a child, a wait. Parts
lie in the task, scope, loop or compensation that asked for them, as their keys say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model import payloads as said
from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of
from outlast.model.payloads import Payload

OPEN = frozenset({"running", "waiting", "retrying"})
_OUTER = re.compile(r"(\d+|scope:[^/]+|loop:[^/]+)/")
_RUN_ITSELF = ("workflow.", "cancel.", "snapshot")


@dataclass
class Attempt:
    """One try of a step."""

    number: int
    started_at: datetime
    ended_at: datetime | None = None
    error: str | None = None
    frames: list[str] = field(default_factory=list)


@dataclass
class Part:
    """Something that the code asked for, and what became of it. `status` is one of running, waiting,
    retrying, completed, failed, abandoned."""

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
    child_id: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether it is still to be answered."""
        return self.status in OPEN

    def everything(self) -> Iterator[Part]:
        """This part and all below it."""
        yield self
        for part in self.parts:
            yield from part.everything()


def outline(history: Iterable[Event], *, ended: bool = False) -> list[Part]:
    """The parts of a run, in the order in which they were asked for. In a run that has `ended`,
    nothing is open any more."""
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
            _tell(tree, event, payload)
    for part in tree.top:
        _settle(part, ended=ended)
    return tree.top


def _settle(part: Part, *, ended: bool) -> None:
    """What lies around others is as they are; in a run that has ended nothing is open."""
    for below in part.parts:
        _settle(below, ended=ended)
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
        """The part that an event is about."""
        part = self._by_key.get(event.step_name)
        if part is None:
            part = self._planted(event.step_name, kind, event.timestamp)
        return part

    def _planted(self, key: str, kind: str, at: datetime) -> Part:
        if key.startswith("undo/"):
            outer, rest = "undo", key.removeprefix("undo/")
        else:
            outer, rest = _outer(key)
        siblings = self.top
        if outer:
            parent = self._by_key.get(outer)
            if parent is None:
                parent = self._planted(outer, _kind_of(outer), at)
            siblings = parent.parts
        part = Part(key=key, kind=kind, name=rest, started_at=at)
        self._by_key[key] = part
        siblings.append(part)
        return part


def _outer(key: str) -> tuple[str, str]:
    """What a key lies in, and its own name there."""
    at = 0
    while match := _OUTER.match(key, at):
        at = match.end()
    return key[: max(at - 1, 0)], key[at:]


def _kind_of(outer: str) -> str:
    if outer == "undo":
        return "compensation"
    name = outer.rpartition("/")[2]
    return name.partition(":")[0] if ":" in name else "task"


def _tell(tree: _Tree, event: Event, payload: Payload) -> None:
    """Add what an event says to the part it is about."""
    kind = event.type.partition(".")[0]
    if event.type == EventType.OPERATION_ABANDONED:
        part = tree.part(event, "operation")
        assert isinstance(payload, said.OperationAbandoned)
        if payload.awaited:
            part.note = "left by the code, awaited"
        else:
            part.status, part.ended_at = "abandoned", event.timestamp
        return
    if isinstance(payload, said.UpdateAccepted | said.UpdateCompleted):
        _tell_update(tree, event, payload)
        return
    part = tree.part(event, kind)
    match payload:
        case said.StepStarted(attempt=number, input=input):
            part.status, part.until = "running", None
            part.input = part.input if input is None else input
            part.attempts.append(Attempt(number, event.timestamp))
        case said.StepCompleted():
            _end(part, event, "completed", output=event.output)
        case said.StepFailedEvent(
            error=error, error_type=kind_of_error, will_retry=again, stopped=cut
        ):
            told = f"{kind_of_error}: {error}" if kind_of_error else error
            _end(part, event, "failed", error=told)
            if part.attempts:
                part.attempts[-1].frames = payload.frames
            if again or cut:
                part.status, part.until, part.ended_at = "retrying", payload.retry_at, None
        case said.MapStarted(item_count=items):
            part.note = f"0 of {items}"
        case said.MapProgress():
            _tell_progress(part, payload)
        case said.MapCompleted(results=results):
            _end(part, event, "completed", output=results)
        case said.MapFailedEvent(error=error, failed_index=index):
            _end(part, event, "failed", error=f"item {index}: {error}")
        case said.SignalWaiting(signal_name=name, timeout_at=until):
            part.name, part.status, part.until = name, "waiting", until
        case said.SignalReceived(signal_name=name, payload=data):
            part.name = name
            _end(part, event, "completed", output=data)
        case said.SignalTimeoutEvent():
            _end(part, event, "failed", error="it did not come in time")
        case said.TimerStarted(fire_at=until):
            part.status, part.until = "waiting", until
        case said.TimerCancelled():
            _end(part, event, "abandoned")
        case said.ChildSpawned(child_run_id=child, workflow_name=name, input=input):
            part.status, part.child_id, part.name, part.input = "waiting", child, name, input
        case said.ChildCompleted(output=output):
            _end(part, event, "completed", output=output)
        case said.ChildFailedEvent(error=error):
            _end(part, event, "failed", error=error)
        case said.HaltStarted(data=data):
            part.status, part.input = "waiting", data
        case said.HaltResumed(value=value):
            _end(part, event, "completed", output=value)
        case said.BranchEvaluated(branch_name=name, choice=choice):
            part.name, part.note = name, choice
            _end(part, event, "completed")
        case said.LoopIterated(iteration=iteration):
            part.note = f"{iteration} done"
            part.kind = "loop"
        case said.ScopeCompleted(output=output):
            _end(part, event, "completed", output=output)
        case said.ScopeFailedEvent(error=error):
            _end(part, event, "failed", error=error)
        case said.CompensationStarted(trigger_step=trigger, steps_to_undo=steps, unknown=unknown):
            part.note = f"{len(steps)} to undo" + (f" because of {trigger}" if trigger else "")
            if unknown:
                part.note += f", outcome unknown: {', '.join(unknown)}"
        case said.CompensationFailed(failed_step=step, error=error):
            _end(part, event, "failed", error=f"{step}: {error}")
        case said.TimerFired() | said.CompensationCompleted():
            _end(part, event, "completed")


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


def _tell_progress(part: Part, payload: said.MapProgress) -> None:
    done, _, rest = part.note.partition(" of ")
    items = rest.partition(",")[0]
    part.note = f"{int(done or 0) + len(payload.completed)} of {items}"
    failed = len(payload.failed) + int((re.search(r", (\d+) failed", rest) or [0, 0])[1])
    part.note += f", {failed} failed" if failed else ""


def _tell_update(
    tree: _Tree, event: Event, payload: said.UpdateAccepted | said.UpdateCompleted
) -> None:
    about = msgspec.structs.replace(event, step_name=f"update:{payload.update_id}")
    part = tree.part(about, "update")
    if isinstance(payload, said.UpdateAccepted):
        part.name, part.input = payload.name, payload.input
    else:
        status = "completed" if payload.error is None else "failed"
        _end(part, event, status, output=payload.output, error=payload.error)
