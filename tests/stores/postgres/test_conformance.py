"""The PostgreSQL store and queue, certified: on the server, and through PgBouncer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from outlast.ports import Queue, Store
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.queue import QueueConformance
from tests.stores.postgres.places import FreshQueue, FreshStore, again, pooled

pytestmark = pytest.mark.server


class TestPostgresStore(StoreConformance):
    """On the server itself, by its own clock, which tests move."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """An empty store."""
        async with FreshStore() as store:
            yield store

    async def advance(self, store: Store, seconds: float) -> None:
        """Move the server's clock, as far as this store sees it."""
        assert isinstance(store, PostgresStore)
        store._session.shift += timedelta(seconds=seconds)

    async def reopen(self, store: Store) -> Store:
        """Another store on the same tables."""
        return await again(store)


@pytest.mark.sampled(3)
class TestPostgresStoreThroughPgBouncer(StoreConformance):
    """Through a pooler, with the time as an input."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store behind a pooler."""
        async with FreshStore(pooled(), clock=clock) as store:
            yield store

    async def reopen(self, store: Store) -> Store:
        """Another store on the same tables."""
        return await again(store)


class TestPostgresQueue(QueueConformance):
    """A queue on its own."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """An empty queue."""
        async with FreshQueue(clock=clock, max_attempts=3) as queue:
            yield queue


class TestQueueOfPostgresStore(QueueConformance):
    """The same beside a store, where tasks are part of a commit; through a pooler."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with FreshStore(pooled(), clock=clock) as store, store.queue() as queue:
            yield queue
