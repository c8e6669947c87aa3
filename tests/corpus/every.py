"""All cases of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import VirtualClock
from tests.corpus import (
    branches,
    children,
    closing,
    compensation,
    control,
    lives,
    maps,
    nesting,
    races,
    replay,
    steps,
    structure,
    waiting,
)

THEMES = (
    steps,
    waiting,
    branches,
    structure,
    children,
    maps,
    compensation,
    closing,
    nesting,
    races,
    control,
    lives,
    replay,
)
CASES = [case for theme in THEMES for case in theme.CASES]
BY_ID = {case.id: case for case in CASES}

MakeStore = Callable[[VirtualClock], Store]


def in_memory(clock: VirtualClock) -> Store:
    """A new store in memory."""
    return MemoryStore(clock=clock)


def in_files(folder: Path) -> MakeStore:
    """New stores on SQLite, each in a file of its own."""
    numbers = iter(range(1_000_000))

    def in_file(clock: VirtualClock) -> Store:
        # Safe enough for a process that only pretends to die, and not slowed down by the disk.
        return SqliteStore(folder / f"{next(numbers)}.db", clock=clock, synchronous="normal")

    return in_file
