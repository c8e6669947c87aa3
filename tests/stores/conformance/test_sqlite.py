"""The SQLite store and queue, certified: in the event loop, and with everything in threads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outlast.ports import Queue, Store
from outlast.stores.sqlite import SqliteQueue, SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.queue import QueueConformance


class TestSqliteStore(StoreConformance):
    """The default: small transactions in the event loop, the others in a thread."""

    thread_safe = True

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        """An empty store in a file of its own, on a clock that stands still."""
        async with SqliteStore(tmp_path / "runs.db", clock=clock) as store:
            yield store

    async def reopen(self, store: Store) -> Store:
        """Another store on the same file."""
        assert isinstance(store, SqliteStore)
        path = str(store.describe()["path"])
        await store.close()
        return SqliteStore(path, clock=store.clock)


@pytest.mark.sampled(3)
class TestSqliteStoreInThreads(TestSqliteStore):
    """As on a slow disk, or with another process in the way: nothing runs in the event loop."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Store]:
        """An empty store whose reads and writes all go to threads."""
        async with SqliteStore(tmp_path / "runs.db", clock=clock, inline=False) as store:
            yield store


class TestSqliteQueue(QueueConformance):
    """A queue alone in its file."""

    @pytest.fixture
    async def queue(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Queue]:
        """A queue of its own."""
        async with SqliteQueue(tmp_path / "tasks.db", clock=clock, max_attempts=3) as queue:
            yield queue


class TestQueueOfSqliteStore(QueueConformance):
    """The same in a store's file, where tasks are part of a commit."""

    @pytest.fixture
    async def queue(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with SqliteStore(tmp_path / "runs.db", clock=clock) as store, store.queue() as queue:
            yield queue
