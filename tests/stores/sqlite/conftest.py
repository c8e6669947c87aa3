"""A file for each test, and the two ways in which a store may work on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.sqlite.probes import Other, Probe


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of the store will be."""
    return tmp_path / "runs.db"


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until it is moved."""
    return ManualClock()


@pytest.fixture
def probe() -> Probe:
    """Sees and steers the statements of the stores that are given it."""
    return Probe()


@pytest.fixture(params=[True, False], ids=["loop", "thread"])
def inline(request: pytest.FixtureRequest) -> bool:
    """Whether the store may work in the event loop."""
    return bool(request.param)


@pytest.fixture
async def store(
    path: Path, clock: ManualClock, probe: Probe, inline: bool
) -> AsyncIterator[SqliteStore]:
    """An open store, once working in the event loop and once in threads."""
    async with SqliteStore(path, clock=clock, connect=probe.connect, inline=inline) as store:
        yield store


@pytest.fixture
def other(path: Path) -> Iterator[Other]:
    """Another program with the same file: open it after the store is."""
    program = Other(path)
    yield program
    program.close()
