"""One connection to Redis for many cases, which have a prefix each: to connect takes as long as a case."""

from __future__ import annotations

from functools import cache

from redis.asyncio import Redis

from outlast.ports.store import Store
from outlast.stores.redis import RedisStore
from outlast.testing.virtual_clock import VirtualClock
from tests.campaigns.programs.runner import ServerTime
from tests.stores.redis.servers import SINGLE, own_prefix, url_of


def connected(clock: VirtualClock) -> Store:
    """A store of its own on the client that all cases share."""
    return RedisStore(_client(), prefix=own_prefix(), retention=None, clock=ServerTime(clock))


@cache
def _client() -> Redis:
    client: Redis = Redis.from_url(url_of(SINGLE))
    return client
