"""Stores on the servers, each under a prefix of its own, and a plain client beside them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis.asyncio import Redis

from outlast.stores.redis import RedisClusterStore, RedisStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.redis.servers import SINGLE, clustered, own_prefix, single, url_of
from tools.serving.redis import start_own


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until it is moved."""
    return ManualClock()


@pytest.fixture
async def client() -> AsyncIterator[Redis]:
    """Another program on the single server."""
    client = Redis.from_url(url_of(SINGLE))
    yield client
    await client.aclose()


@pytest.fixture(scope="session")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for tests that mistreat it, so that no other test suffers."""
    url, process = start_own(tmp_path_factory.mktemp("server"))
    yield url
    process.stop()


@pytest.fixture
async def warden(own_server: str) -> AsyncIterator[Redis]:
    """Who mistreats that server, and puts everything right again."""
    client = Redis.from_url(own_server)
    yield client
    await client.aclose()


@pytest.fixture
async def victim(own_server: str, clock: ManualClock) -> AsyncIterator[RedisStore]:
    """An open store on that server."""
    async with RedisStore(own_server, prefix=own_prefix(), clock=clock) as store:
        yield store


@pytest.fixture
async def store(clock: ManualClock) -> AsyncIterator[RedisStore]:
    """An open store on the single server."""
    async with single(clock=clock) as store:
        yield store


@pytest.fixture
async def parted(clock: ManualClock) -> AsyncIterator[RedisClusterStore]:
    """An open store in partitions, on the cluster."""
    async with clustered(clock=clock) as store:
        yield store
