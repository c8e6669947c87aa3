"""How to make the stores that the arsenal is turned on: new and empty, on a clock of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.stateful import MakeStore

# In memory if there is a folder for that: these tests are about answers, not about the disk.
SHM = Path("/dev/shm")
FOLDER = SHM if SHM.is_dir() else None


@contextmanager
def memory_store(clock: ManualClock) -> Iterator[Store]:
    """The specification."""
    yield MemoryStore(clock=clock)


@contextmanager
def sqlite_store(clock: ManualClock) -> Iterator[Store]:
    """A store in a file of its own."""
    with TemporaryDirectory(dir=FOLDER) as folder:
        yield SqliteStore(Path(folder) / "outlast.db", clock=clock)


ON_TRIAL: dict[str, MakeStore] = {"sqlite": sqlite_store}
"""All but the memory store. A new store is added here and gets machine, sweep, storm and campaign."""
