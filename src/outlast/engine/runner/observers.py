"""Observers: called with each commit of this process once it is durable, in the order of each run.

Log lines are written here from events, and so can be metrics and traces: the engine itself counts and logs nothing of
what its runs do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable

from outlast.engine.replay.error_text import shown
from outlast.model.commit import Commit, Committed
from outlast.model.event import Event, EventType, payload_of
from outlast.model.payloads import (
    StepFailedEvent,
    StepStarted,
    WorkflowCancelled,
    WorkflowFailed,
    chain_text,
)

Observer = Callable[[Commit, Committed], None]
"""Called with a commit that has become durable, and the store's answer. It must not block."""

log = logging.getLogger("outlast.runs")

_LEVELS: dict[str, int] = {
    EventType.WORKFLOW_STARTED: logging.INFO,
    EventType.WORKFLOW_COMPLETED: logging.INFO,
    EventType.WORKFLOW_CANCELLED: logging.INFO,
    EventType.WORKFLOW_FAILED: logging.WARNING,
    EventType.STEP_FAILED: logging.INFO,
}


class Observers:
    """Calls several observers. An error of one is logged: the commit is durable anyway."""

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = (log_events, *observers)

    def __call__(self, commit: Commit, committed: Committed) -> None:
        for observer in self._observers:
            try:
                observer(commit, committed)
            except Exception:
                log.exception("observer %r failed at a commit of run %s", observer, commit.run_id)


class UnknownChildren:
    """Warns once for each workflow of children whose code this process does not have: they wait for a worker that has
    it, and so do their parents."""

    def __init__(self, known: Container[str]) -> None:
        self._known = known
        self._reported: set[str] = set()

    def __call__(self, commit: Commit, _: Committed) -> None:
        for start in commit.starts:
            name = start.run.workflow
            if name not in self._known and name not in self._reported:
                self._reported.add(name)
                log.warning(
                    "run %s has a child of workflow %r, which is not registered here: it waits "
                    "until a worker has it. If this is the only one: App(…, workflows=[…, %s])",
                    shown(commit.run_id), name, name,
                )  # fmt: skip


def log_events(commit: Commit, _: Committed) -> None:
    """Log the events of a commit to ``outlast.runs``: a failed run at WARNING, starts and ends of runs and failed
    attempts of steps at INFO, everything else at DEBUG."""
    lowest = log.getEffectiveLevel()
    for event in commit.events:
        level = _LEVELS.get(event.type, logging.DEBUG)
        if level >= lowest:
            extra = {"run": commit.run_id, "step": event.step_name, "event": event.type}
            log.log(level, "%s", _line(event), extra=extra)


def _line(event: Event) -> str:
    what = f"{event.type} {event.step_name}".strip()
    text = f"{what} [run={shown(event.run_id)}]"
    match payload_of(event):
        case StepStarted(attempt=attempt):
            return f"{text} attempt {attempt}"
        case StepFailedEvent(attempt=attempt, error=error, will_retry=will_retry) as failed:
            end = "will be tried again" if will_retry else "given up"
            kind = f"{failed.error_type}: " if failed.error_type else ""
            at = f" at {failed.frames[-1]}" if failed.frames else ""
            return f"{text} attempt {attempt}, {end}: {kind}{error}{at}"
        case WorkflowFailed(error=reason, details=details):
            return f"{text}: {reason}" + (f"\n{chain_text(details)}" if details else "")
        case WorkflowCancelled(reason=reason):
            return f"{text}: {reason}"
    return text
