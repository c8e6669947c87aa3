"""The wake-up channel knows whether it hears others: who can rely on it looks more rarely."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from outlast.model import Commit, Run
from outlast.model.times import NOW
from outlast.ports import SystemClock
from outlast.ports.notifier import hears_all
from outlast.stores.redis import RedisStore
from tests.stores.redis.servers import again, clustered, single

pytestmark = pytest.mark.server

CLOCK = SystemClock()


async def listening(store: RedisStore) -> int:
    """Wait until a store hears others; how often it has woken by then."""
    while not hears_all(store.notifier):
        await store.notifier.wait(CLOCK, 0.05, since=store.notifier.wakeups)
    return store.notifier.wakeups


@pytest.mark.parametrize("make", [single, clustered])
async def test_a_listener_is_woken(make: Callable[[], RedisStore]) -> None:
    """What another process begins is heard, on a server and on a cluster."""
    async with make() as here, again(here) as there:
        wakeups = await listening(there)
        await here.commit([Commit(run_id="r", create=Run(id="r", runnable_at=NOW))])
        assert await there.notifier.wait(CLOCK, 60, since=wakeups)


async def test_a_connection_that_ends_is_not_relied_on(victim: RedisStore, warden: Redis) -> None:
    """Nobody thinks that it hears what it cannot, and it listens again by itself."""
    await listening(victim)
    await warden.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]
    while hears_all(victim.notifier):
        await victim.notifier.wait(CLOCK, 0.05, since=victim.notifier.wakeups)
    await listening(victim)
