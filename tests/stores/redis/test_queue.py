"""The Redis queue, certified: on its own, of a store, and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.ports import Queue
from outlast.stores.redis import RedisQueue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue import QueueConformance
from tests.stores.redis.servers import CLUSTER, SINGLE, clustered, own_prefix, single, url_of

pytestmark = pytest.mark.server


class TestRedisQueue(QueueConformance):
    """A queue that stands alone."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """A queue under a prefix of its own."""
        url = url_of(SINGLE)
        async with RedisQueue(url, prefix=own_prefix(), clock=clock, max_attempts=3) as queue:
            yield queue


class TestQueueOfRedisStore(QueueConformance):
    """The same beside a store, where tasks are part of a commit."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with single(clock=clock) as store, store.queue() as queue:
            yield queue


class TestRedisClusterQueue(QueueConformance):
    """A queue that stands alone on a cluster."""

    exact_turns = False

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """A queue under a prefix of its own."""
        url = url_of(CLUSTER)
        async with RedisQueue(
            url, prefix=own_prefix(), partitions=4, clock=clock, max_attempts=3
        ) as queue:
            yield queue


class TestQueueOfRedisClusterStore(QueueConformance):
    """The same beside a store in partitions."""

    exact_turns = False

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with clustered(clock=clock) as store, store.queue() as queue:
            yield queue
