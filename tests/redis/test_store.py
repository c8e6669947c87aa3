"""The Redis stores, certified: on one server, on a cluster, and on the server's own time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.ports import Store
from outlast.stores.redis import RedisStore
from outlast.testing.clock import ManualClock
from outlast.testing.conformance import StoreConformance
from tests.redis.servers import again, clustered, single

pytestmark = pytest.mark.server


class TestRedisStore(StoreConformance):
    """One server, every write on its disk before it is answered."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store under a prefix of its own."""
        async with single(clock=clock) as store:
            yield store

    async def reopen(self, store: Store) -> Store:
        """Another store under the same prefix."""
        assert isinstance(store, RedisStore)
        await store.close()
        return again(store)


class TestRedisClusterStore(TestRedisStore):
    """A cluster, with runs in several partitions."""

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty store in four partitions, on several nodes."""
        async with clustered(clock=clock) as store:
            yield store
