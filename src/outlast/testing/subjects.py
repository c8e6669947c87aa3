"""What is simulated, and what became of it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from outlast.api import Workflow
from outlast.client import Client
from outlast.model.event import Event, EventType
from outlast.ports.store import Store
from outlast.testing.effects import Ledger
from outlast.testing.endings import Ending
from outlast.testing.virtual import VirtualClock


@dataclass(frozen=True)
class Outside:
    """What acts on runs from outside has: a client whose calls do not fail, the store, time."""

    client: Client
    store: Store
    clock: VirtualClock
    ledger: Ledger


@dataclass(frozen=True)
class Subject:
    """One run: its workflow and arguments, other workflows that it starts, and what the `world`
    does to it, from its beginning on."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    id: str = "run"
    workflows: tuple[Workflow[..., Any], ...] = ()
    world: Callable[[Outside], Awaitable[object]] | None = None


@dataclass
class Simulated:
    """What became of it. `violations` are promises that were not kept, `differences` what ended
    otherwise than in calm weather. `digest` is of the trace: the same for two simulations of one
    seed."""

    seed: int
    ending: Ending
    histories: dict[str, list[Event]]
    trace: list[str]
    violations: list[str]
    crashes: int
    pauses: int
    faults: int
    differences: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """A hash of all that happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    @property
    def was_given_up(self) -> bool:
        """Whether a step or a map was given up because its process died too often: then the
        outcome may be another, and rightly so."""
        return any(
            event.type in {EventType.STEP_FAILED, EventType.MAP_FAILED}
            and b"the process died" in bytes(event.data)
            for history in self.histories.values()
            for event in history
        )

    def check(self) -> None:
        """Raise if anything is not as it should be."""
        found = self.violations + self.differences
        if found:
            raise AssertionError("\n".join([f"seed {self.seed}, trace {self.digest}:", *found]))
