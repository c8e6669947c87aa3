"""How to make the stores that are compared with the memory store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from outlast.ports import Store
from outlast.testing.clock import ManualClock

# In memory if there is a folder for that: these tests are about answers, not about the disk.
SHM = Path("/dev/shm")
FOLDER = SHM if SHM.is_dir() else None


@contextmanager
def sqlite_store(clock: ManualClock) -> Iterator[Store]:
    """A store in a file of its own."""
    from outlast.stores.sqlite import SqliteStore

    with TemporaryDirectory(dir=FOLDER) as folder:
        yield SqliteStore(Path(folder) / "outlast.db", clock=clock)
