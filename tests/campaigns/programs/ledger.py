"""The ledger: what bodies of steps, workflow code, the store and callers have seen, in one order.

It is kept outside of the store and survives every death of a worker. Each line has a tick, which
says what came first, and the time of the virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Body:
    """One execution of the body of a step, or of its compensation."""

    tick: int
    time: float
    run_id: str
    uid: str
    key: str
    attempt: int
    path: str
    undo: bool
    idempotency_key: str
    worker: str
    end: str | None = None
    """`ok`, `raised`, `cut`; None if its process died under it."""
    ended: int = 0
    ended_at: float = 0.0


@dataclass(frozen=True)
class Observed:
    """What workflow code was given for one statement: a value, or an error."""

    tick: int
    run_id: str
    uid: str
    path: str
    kind: str
    value: Any


@dataclass(frozen=True)
class Recorded:
    """An event that a commit has made durable. `copied`: it is part of the history that a run was
    begun with; `forced`: by a client that took the run away from its owner."""

    tick: int
    time: float
    run_id: str
    uid: str
    type: str
    key: str
    data: bytes
    copied: bool
    forced: bool


@dataclass(frozen=True)
class Begun:
    """A child that a commit of its parent has begun: the parent's life, and the child's."""

    parent_uid: str
    run_id: str
    uid: str


@dataclass
class Told:
    """One act from outside: what was asked, and what the caller was answered."""

    tick: int
    time: float
    do: str
    run_id: str
    name: str
    value: Any
    dedup: str | None
    answer: Any = None
    error: str | None = None
    done: int | None = None


@dataclass
class Ledger:
    """All lines of one case."""

    now: Callable[[], float]
    bodies: list[Body] = field(default_factory=list)
    seen: list[Observed] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    children: list[Begun] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    effects: list[tuple[str, str, str]] = field(default_factory=list)
    """What transactional steps have written and committed: the run, its life, the path."""
    faults: list[tuple[str, float, float]] = field(default_factory=list)
    """What went wrong: the kind, when, and for how many seconds."""
    runs: list[str] = field(default_factory=list)
    """The ids of all runs, in the order in which they were begun."""
    problems: list[str] = field(default_factory=list)
    """What the interpreter itself has found to be wrong."""
    closed: bool = False
    _tick: int = 0

    def tick(self) -> int:
        """The next number."""
        self._tick += 1
        return self._tick

    def raised(self, run_id: str, path: str) -> int:
        """How often the body of a step has raised."""
        return sum(
            one.end == "raised" and not one.undo and (one.run_id, one.path) == (run_id, path)
            for one in self.bodies
        )


@dataclass(frozen=True)
class FinalRun:
    """What the store holds of a run in the end."""

    id: str
    uid: str
    status: str
    wait_kind: str | None
    parent: str | None
    error: str | None
    result: Any
    sequences: tuple[int, ...]
