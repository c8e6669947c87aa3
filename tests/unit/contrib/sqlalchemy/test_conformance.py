"""The store on SQLAlchemy's engines, certified: each driver, for loops and for threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from outlast.ports import Queue, Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import (
    BadInput,
    Commits,
    Concurrency,
    Fidelity,
    Lifecycle,
    StoreConformance,
)
from outlast.testkit.conformance.queue import QueueConformance
from tests.unit.contrib.sqlalchemy.places import NAMES, again, fresh


@pytest.mark.sampled(8)
class Certified(StoreConformance):
    """Any of them; time is an input."""

    kind: str

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        """An empty store on an engine of the user's, with a projection, which must not be in the way
        of anything."""
        async with fresh(self.kind, tmp_path, clock=clock, projection=NAMES) as store:
            yield store

    async def reopen(self, store: Store) -> Store:
        """Another store on the same data."""
        return await again(store)


@pytest.mark.server
@pytest.mark.proves("D-38", "D-37")
class TestPostgresByAsyncpg(Certified):
    """An `AsyncEngine` on asyncpg, by the server's own clock, which tests move."""

    kind = "postgresql+asyncpg"

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """An empty store."""
        async with fresh(self.kind) as store:
            yield store

    async def advance(self, store: Any, seconds: float) -> None:
        """Move the server's clock, as far as this store sees it."""
        store._session.shift += timedelta(seconds=seconds)


@pytest.mark.server
@pytest.mark.proves("D-38", "D-37")
class TestPostgresByPsycopg(Certified):
    """An `Engine` on psycopg: statements are done in threads."""

    kind = "postgresql+psycopg threads"


@pytest.mark.server
@pytest.mark.sampled(8)
class TestPostgresByPsycopgInLoop(Lifecycle, Commits, Fidelity, BadInput, Concurrency):
    """An `AsyncEngine` on psycopg: the same statements and values, so what differs is looked at."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store."""
        async with fresh("postgresql+psycopg", clock=clock) as store:
            yield store

    async def reopen(self, store: Store) -> Store:
        """Another store on the same data."""
        return await again(store)


@pytest.mark.proves("D-38", "D-37")
class TestSqlite(Certified):
    """In the file of an `Engine`, whose way to connect is ours too."""

    kind = "sqlite threads"


@pytest.mark.server
@pytest.mark.sampled(8)
class TestQueueByPsycopg(QueueConformance):
    """The queue of a store, where tasks are part of a commit."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with fresh("postgresql+psycopg", clock=clock) as store, store.queue() as queue:
            yield queue


@pytest.mark.sampled(8)
class TestQueueInFile(QueueConformance):
    """The same in the file of an `AsyncEngine`."""

    @pytest.fixture
    async def queue(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with (
            fresh("sqlite+aiosqlite", tmp_path, clock=clock) as store,
            store.queue() as queue,
        ):
            yield queue
