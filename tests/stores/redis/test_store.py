"""The Redis stores, certified: on one server, on a cluster, and on the server's own time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.ports import Store
from outlast.stores.redis import RedisStore
from outlast.stores.redis.claims import TRIED
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.scenario import begin_runnable
from tests.stores.redis.servers import again, clustered, single

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


@pytest.mark.proves("I24")
async def test_a_run_behind_more_rejected_ones_than_one_look_tries_is_found(
    clock: ManualClock,
) -> None:
    """One bad deploy rejects hundreds of runs that are due: those behind them go on."""
    async with single(clock=clock) as store:
        codes = "a" * 16
        await begin_runnable(store, *(f"no-{n:03}" for n in range(TRIED + 50)), rejected_by=codes)
        clock.advance(1)
        await begin_runnable(store, "fine")
        (found,) = await store.claim_runs("w", 30, code=codes, limit=1)
        assert found.run.id == "fine"
