"""Whose client it is, what it is told, and which scripts the server knows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster

from outlast.app import App
from outlast.errors import InvalidValue, NotAStore, SchemaTooNew, StoreFault, UnsafeStorage
from outlast.model import Commit, Creation, Run
from outlast.ports import Durability
from outlast.stores.redis import RedisClusterStore, RedisQueue, RedisStore
from outlast.stores.redis.location import Location
from outlast.stores.redis.session import all_scripts
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.scenario import begin, done, events
from outlast.urls import resolve
from tests.stores.redis.servers import CLUSTER, SINGLE, again, own_prefix, url_of

pytestmark = pytest.mark.server


@pytest.mark.proves("M-41", "D-15")
async def test_a_client_of_the_user_is_used_and_not_closed(client: Redis) -> None:
    """After the store is closed, the client still answers on the connections it had."""
    async with RedisStore(client, prefix=own_prefix()) as store:
        await begin(store, "r", *events("r", 1))
    assert client.connection_pool._available_connections[0].is_connected
    assert await client.ping()


@pytest.mark.proves("M-41")
async def test_a_cluster_client_of_the_user_is_used_and_not_closed() -> None:
    """The same for a cluster."""
    host, _, port = url_of(CLUSTER).rpartition("/")[2].partition(":")
    client = RedisCluster(host=host, port=int(port))
    async with RedisClusterStore(client, prefix=own_prefix(), partitions=4) as store:
        await begin(store, "r", *events("r", 1))
        assert (await store.get("r")).sequence == 1
    assert await client.ping()
    await client.aclose()


@pytest.mark.proves("M-41")
async def test_a_client_that_decodes_answers_does_no_harm() -> None:
    """Payloads are bytes, whatever the client would make of them."""
    client = Redis.from_url(url_of(SINGLE), decode_responses=True, encoding="latin-1")
    async with RedisStore(client, prefix=own_prefix()) as store:
        await begin(store, "é", *events("é", 1))
        assert (await store.get("é")).sequence == 1
    await client.aclose()


@pytest.mark.proves("M-42", "D-15")
async def test_by_url_the_store_owns_its_client(store: RedisStore) -> None:
    """Closing the store closes its connections."""
    await begin(store, "r")
    server = await store._session.server()
    link: Any = server._link
    pool = link._client.connection_pool
    assert any(one.is_connected for one in pool._available_connections)
    await store.close()
    assert not any(one.is_connected for one in pool._available_connections)


@pytest.mark.proves("M-43")
async def test_scripts_are_loaded_when_the_store_opens(client: Redis, store: RedisStore) -> None:
    """All of them, once, known by their SHA."""
    assert all(await client.script_exists(*(one.sha.decode() for one in all_scripts())))


@pytest.mark.proves("M-43", "C-03")
async def test_scripts_that_the_server_forgot_are_loaded_again(
    warden: Redis, victim: RedisStore
) -> None:
    """Also in the middle of a batch; every commit happens once."""
    ids = [f"r{n}" for n in range(20)]
    commits = [Commit(run_id=id, create=Run(id=id), events=events(id, 2)) for id in ids]
    for _ in range(3):
        await warden.script_flush()
        await victim.commit(commits)
    assert [await victim.last_sequence(id) for id in ids] == [2] * 20
    await warden.script_flush()
    assert await victim.claim_runs("w", 30, run_ids=["r1"]) != []
    await warden.script_flush()
    await asyncio.gather(*(victim.append(id, events(id, 1)) for id in ids[2:]))
    assert [await victim.last_sequence(id) for id in ids[2:]] == [3] * 18


@pytest.mark.proves("M-42")
def test_urls_name_stores_lazily() -> None:
    """The app resolves them, and connects to nothing before it opens."""
    assert type(resolve("redis://localhost:1")) is RedisStore
    assert type(resolve("rediss://localhost:1/2")) is RedisStore
    assert type(resolve("redis+sentinel://localhost:1/primary")) is RedisStore
    parted = resolve("redis+cluster://a:1,b:2?partitions=8&prefix=x&retention=off")
    assert type(parted) is RedisClusterStore
    told = parted.describe()
    assert (told["partitions"], told["prefix"], told["retention_seconds"]) == (8, "x", None)
    assert App("redis://localhost:1").store is not None


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "redis+cluster://localhost:x",
        "redis://localhost?retention=soon",
        "redis://localhost?retention=-1",
        "redis+cluster://localhost?partitions=many",
        "redis+sentinel://localhost:1",
    ],
)
def test_a_bad_url_is_refused(url: str) -> None:
    """With a typed error, before or when a client is made."""
    kind = RedisClusterStore if "cluster" in url else RedisStore
    with pytest.raises(InvalidValue):
        asyncio.run(kind(url).open())


def test_something_else_is_no_client() -> None:
    """Said when it is used."""
    with pytest.raises(InvalidValue, match="no client"):
        asyncio.run(RedisStore(object()).open())


@pytest.mark.proves("S22")
async def test_a_password_is_in_no_message() -> None:
    """Neither in errors nor in what a store says of itself."""
    url = url_of(SINGLE).replace("redis://", "redis://someone:s3cret@")
    store = RedisStore(url, prefix=own_prefix())
    with pytest.raises(StoreFault) as caught:
        await store.open()
    shown = f"{caught.value!r} {caught.value} {store.describe()} {Location.parse(url)!r} {store!r}"
    assert "s3cret" not in shown
    with pytest.raises(InvalidValue) as bad:
        Location.parse("redi://someone:s3cret@localhost")
    assert "s3cret" not in str(bad.value)


@pytest.mark.proves("C-01")
async def test_the_class_of_durability_is_told(
    warden: Redis, victim: RedisStore, own_server: str
) -> None:
    """always: survives power loss; everysec: a crash; no file at all: nothing."""
    assert victim.durability is Durability.POWER_LOSS
    try:
        await warden.config_set("appendfsync", "everysec")
        async with RedisStore(own_server, prefix=own_prefix()) as other:
            assert other.durability is Durability.PROCESS_CRASH
    finally:
        await warden.config_set("appendfsync", "always")
    assert victim.describe()["fsync"] == "always"


@pytest.mark.proves("C-01")
async def test_a_node_of_a_cluster_is_not_taken_for_a_server() -> None:
    """Some of the keys would be elsewhere: that is said when it is opened, not by the first run."""
    node = url_of(CLUSTER).replace("redis+cluster://", "redis://").partition(",")[0]
    with pytest.raises(InvalidValue, match=r"redis\+cluster://"):
        await RedisStore(node, prefix=own_prefix()).open()


@pytest.mark.proves("C-01", "I31")
async def test_a_server_that_evicts_is_refused(
    warden: Redis, own_server: str, clock: ManualClock
) -> None:
    """Unless the user can lose runs. Policies that evict only what expires are fine."""
    try:
        await warden.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(UnsafeStorage, match="noeviction"):
            await RedisStore(own_server, clock=clock).open()
        async with RedisStore(own_server, clock=clock, allow_eviction=True) as store:
            await begin(store, "r")
        await warden.config_set("maxmemory-policy", "volatile-lru")
        async with RedisStore(own_server, clock=clock):
            pass
    finally:
        await warden.config_set("maxmemory-policy", "noeviction")


async def test_the_number_of_partitions_is_fixed() -> None:
    """A store that was created with four cannot be opened with five, nor without."""
    prefix = own_prefix()
    url = url_of(CLUSTER)
    async with RedisClusterStore(url, prefix=prefix, partitions=4):
        pass
    with pytest.raises(NotAStore, match="4 partitions"):
        await RedisClusterStore(url, prefix=prefix, partitions=5).open()
    with pytest.raises(NotAStore):
        await RedisQueue(url, prefix=prefix, partitions=3).open()


@pytest.mark.proves("I32")
async def test_a_store_of_a_newer_outlast_is_left_alone(client: Redis, store: RedisStore) -> None:
    """It says so instead of reading what it does not know."""
    await client.hset(f"{store.describe()['prefix']}:meta", "format", "99")
    with pytest.raises(SchemaTooNew):
        await again(store).open()


async def test_two_stores_wake_each_other(store: RedisStore) -> None:
    """Whoever waits in another process looks at once: pub/sub, as a hint."""
    async with again(store) as other:
        wakeups = other.notifier.wakeups
        waiting = asyncio.create_task(other.notifier.wait(other.clock, 3600, since=wakeups))
        while not waiting.done():
            # The other one may not listen yet: a wake-up that is lost does no harm.
            await done(store, Commit(run_id="r", create=Run(id="r"), creation=Creation.UPSERT))
            await asyncio.wait([waiting], timeout=0.02)
        assert await waiting
