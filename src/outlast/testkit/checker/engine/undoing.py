"""What compensation promises: I20."""

from __future__ import annotations

from collections.abc import Iterator

from outlast.model.payloads import (
    ChildSpawned,
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
    MapProgress,
    MapStarted,
    StepCompleted,
    StepFailedEvent,
    StepStarted,
    TimerStarted,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowFailed,
)
from outlast.testkit.checker.evidence import Case, Violation

UNDO = "undo/"
_OF_THE_CODE = (StepStarted, StepCompleted, MapStarted, MapProgress, ChildSpawned, TimerStarted)
"""Events that must not occur after the compensation has started: no code is left to request them."""


def undone_in_reverse(case: Case) -> Iterator[Violation]:
    """I20: what was done is undone in exact reverse, each once, to the end, visibly."""
    for id in case.final.runs:
        done: list[str] = []
        undoing: _Undoing | None = None
        for event, payload in case.typed_events(id):
            key = event.step_name
            if undoing is not None:
                for problem in undoing.take(key, payload, forced=event.id in case.forced):
                    yield Violation("I20", id, problem)
            match payload:
                case StepCompleted() if not key.startswith(UNDO):
                    done.append(key)
                case MapProgress(completed=indices):
                    done += [f"{key}[{index}]" for index in indices]
                case CompensationStarted(steps_to_undo=steps, unknown=unknown):
                    if undoing is not None:
                        yield Violation("I20", id, "it is undone twice")
                    undoing = _Undoing(steps)
                    for problem in _planned(done, [key for key in steps if key not in unknown]):
                        yield Violation("I20", id, problem)


def _planned(done: list[str], steps: list[str]) -> Iterator[str]:
    """What is to be undone: all that has a way to be, in reverse. Whether a step has one is seen
    by whether another call of it is undone."""
    names = {_name(step) for step in steps}
    wanted = [key for key in reversed(done) if _name(key) in names]
    if steps != wanted:
        yield f"{steps} are to be undone, and not {wanted}, the reverse of what was done"


class _Undoing:
    """One undoing, followed event by event."""

    def __init__(self, steps: list[str]) -> None:
        self._left = list(steps)
        self._steps = steps
        self._current: str | None = None
        self._failed: set[str] = set()
        self._told: set[str] = set()

    def take(self, key: str, payload: object, *, forced: bool) -> Iterator[str]:
        if isinstance(payload, _OF_THE_CODE) and not key.startswith(UNDO):
            yield f"{type(payload).__name__} of {key!r} is recorded while it is undone"
        match payload:
            case StepStarted(attempt=1) if key.startswith(UNDO):
                step = key.removeprefix(UNDO)
                yield from self._begin(step)
            case StepCompleted() if key.startswith(UNDO):
                self._current = None
            case StepFailedEvent(will_retry=False) if key.startswith(UNDO):
                self._current = None
                self._failed.add(key.removeprefix(UNDO))
            case CompensationFailed(failed_step=step):
                self._told.add(step)
                if step in self._left:  # it could not even begin
                    self._left.remove(step)
                    self._failed.add(step)
            case CompensationCompleted(steps_compensated=steps):
                if steps != self._steps or self._left or self._failed:
                    yield f"it says that {steps} are undone, of {self._steps}"
            case WorkflowCompleted():
                yield "it has undone its steps and is completed"
            case WorkflowFailed() | WorkflowCancelled() if not forced:
                unfinished = [*([self._current] if self._current else []), *self._left]
                if unfinished:
                    yield f"it ended before {unfinished} were undone"
                if self._failed != self._told:
                    yield f"that {sorted(self._failed)} could not be undone is not reported"

    def _begin(self, step: str) -> Iterator[str]:
        if self._current is not None:
            yield f"{step!r} was undone before the undoing of {self._current!r} had ended"
        if step not in self._left:
            yield f"{step!r} was undone twice, or not to be undone at all"
        elif step != self._left[0]:
            yield f"{step!r} was undone before {self._left[0]!r}"
        self._left = [one for one in self._left if one != step]
        self._current = step


def _name(key: str) -> str:
    """The name of a step, without its place, its number and its item."""
    return key.rpartition("/")[2].partition("[")[0].partition("#")[0]
