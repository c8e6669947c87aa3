"""The stores on Django's databases, certified; and the corpus of tiny workflows on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.store import worker_store
from outlast.ports import Queue, Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.queue import QueueConformance
from tests.unit.contrib.django.places import POSTGRES, SQLITE, use, wipe_and_leave


async def fresh(alias: str) -> str:
    """A database with nothing in it."""
    await asyncio.to_thread(wipe_and_leave, alias)
    return alias


@pytest.mark.sampled(12)
class TestDjangoOnSqlite(StoreConformance):
    """In the project's own file, beside its tables."""

    thread_safe = True
    alias = SQLITE

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store, on a clock that stands still."""
        with use(await fresh(self.alias)):
            async with worker_store(read_settings(), clock=clock) as store:
                yield store

    async def reopen(self, store: Store) -> Store:
        """Another store on the same tables."""
        await store.close()
        return worker_store(read_settings(), clock=store.clock)


@pytest.mark.server
class TestDjangoOnPostgres(TestDjangoOnSqlite):
    """On connections that Django has made, in threads."""

    thread_safe = False
    alias = POSTGRES


@pytest.mark.sampled(12)
class TestQueueOfDjangoOnSqlite(QueueConformance):
    """The queue beside it."""

    alias = SQLITE

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        with use(await fresh(self.alias)):
            async with worker_store(read_settings(), clock=clock) as store, store.queue() as queue:
                yield queue


@pytest.mark.server
class TestQueueOfDjangoOnPostgres(TestQueueOfDjangoOnSqlite):
    """The same on PostgreSQL."""

    alias = POSTGRES
