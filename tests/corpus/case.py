"""A case: one tiny workflow, what the world does to it, and how it has to end.

The history is written as a person would tell it, one ``type key`` per line. A crash may repeat an
attempt and, where branches run side by side, change who is first; nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from outlast.decorators import Workflow
from outlast.model import Event
from outlast.model.event import EventType, payload_of
from outlast.model.payloads import MapProgress, StepFailedEvent, StepLost, StepProgress, StepStarted

if TYPE_CHECKING:
    from tests.corpus.stage import Stage


RUN = "run"
"""The id of the run that a case is about."""


@dataclass(frozen=True)
class Failed:
    """The run ended in an error that says this, among other things."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failed) and (self.text in other.text or other.text in self.text)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Cancelled:
    """The run was cancelled for this reason."""

    reason: str


@dataclass(frozen=True)
class Case:
    """One behaviour."""

    workflow: Workflow[..., Any]
    history: str
    outcome: Any = None
    args: tuple[Any, ...] = ()
    name: str = ""
    others: tuple[Workflow[..., Any], ...] = ()
    """Workflows that have to be registered too: children."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """The histories of other runs, by id."""
    world: Callable[[Stage], Awaitable[None]] | None = None
    """What happens outside: signals, a cancel, somebody who resumes."""
    parallel: bool = False
    """Branches run side by side: after a crash their events may come in another order."""
    bodies: int | None = None
    """How many attempts of steps run, if nothing crashes; None: as many as have completed."""
    notes: list[str] | None = None
    """What steps have noted on the stage, in order, if nothing crashes."""
    after_crash: tuple[Any, ...] = ()
    """Other outcomes that a process which died at the wrong moment may leave."""

    @property
    def id(self) -> str:
        return self.name or self.workflow.name

    @property
    def workflows(self) -> tuple[Workflow[..., Any], ...]:
        return (self.workflow, *self.others)


def lines(text: str) -> list[str]:
    """A history as it is written in a case."""
    return [line.strip() for line in text.strip().splitlines() if line.strip()]


def told(history: Iterable[Event]) -> list[str]:
    """A recorded history, in the same form. How the results of a map are bundled depends on how
    fast the store is: several lines of progress are told as one."""
    lines: list[str] = []
    for event in history:
        line = f"{event.type} {event.step_name}".rstrip()
        if event.type != EventType.MAP_PROGRESS or line != lines[-1]:
            lines.append(line)
    return lines


def without_repeats(history: Iterable[Event]) -> list[str]:
    """A history up to attempts: what a crash has made of it is left out.

    Which attempt it is, what was reported on the way, and how the results of a map were bundled:
    all of these depend on where the process died.
    """

    def repeats(event: Event) -> bool:
        match payload_of(event):
            case StepStarted(attempt=attempt):
                return attempt > 1
            case StepFailedEvent(will_retry=again):
                return again
            case StepProgress() | StepLost() | MapProgress():
                return True
        return False

    return told(event for event in history if not repeats(event))


def matching(case: Case, told: list[str]) -> list[str]:
    """Lines to compare: in order, or sorted if the order is open."""
    return sorted(told) if case.parallel else told
