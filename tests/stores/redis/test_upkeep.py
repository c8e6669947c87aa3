"""Retention, quarantine, the server's own time: what a Redis store does beside the port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from outlast.errors import Fenced, InvalidValue
from outlast.model import Change, Commit, RunQuery, Status
from outlast.ports import Store
from outlast.query import parse
from outlast.stores.memory import MemoryStore
from outlast.stores.redis import RedisClusterStore, RedisStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import Claims, Leases, Runnable, Tasks, Timers
from outlast.testkit.conformance.run_contents import furnish
from outlast.testkit.conformance.scenario import begin, begin_runnable, done, events, finish, take
from outlast.transfer import move_runs
from tests.stores.redis.servers import single

pytestmark = pytest.mark.server
WEEK = timedelta(days=7).total_seconds()


@pytest.mark.proves("D-15", "D-16", "D-17", "C-05", "I26")
async def test_a_run_is_kept_for_seven_days_after_its_end(clock: ManualClock) -> None:
    """Counted from the end, whoever looks for work drops what is older; a live run stays."""
    async with single(clock=clock, retention=WEEK) as store:
        assert RedisStore("redis://x").describe()["retention_seconds"] == WEEK
        for id in ("old", "young", "live"):
            await begin(store, id)
        await finish(store, "old")
        clock.advance(WEEK / 2)
        await finish(store, "young")
        clock.advance(WEEK / 2 + 120)
        await store.claim_runs("w", 30)
        assert [await store.exists(id) for id in ("old", "young", "live")] == [False, True, True]


@pytest.mark.proves("D-15", "C-05")
async def test_retention_can_be_off_or_another(clock: ManualClock) -> None:
    """None keeps for ever; a time that cannot be is refused."""
    async with single(clock=clock, retention=None) as store:
        await begin(store, "r")
        await finish(store, "r")
        clock.advance(100 * WEEK)
        await store.claim_runs("w", 30)
        assert await store.exists("r")
    for bad in (0, -5, float("nan")):
        with pytest.raises(InvalidValue):
            single(retention=bad)


async def rolled_back(store: RedisStore, client: Redis) -> None:
    """A run whose last commit was acknowledged and is no longer there, as after a failover."""
    await begin_runnable(store, "r")
    claim = await take(store, "r")
    key = f"{store.describe()['prefix']}:wf:r:state"
    before: Any = await client.hgetall(key)
    await done(store, Commit(run_id="r", token=claim.token, events=events("r", 1)))
    await client.delete(f"{key[:-6]}:events", f"{key[:-6]}:event-ids", f"{key[:-6]}:seq")
    await client.hset(key, mapping=before)


@pytest.mark.proves("I6")
async def test_a_run_that_went_back_is_quarantined(store: RedisStore, client: Redis) -> None:
    """Its owner is fenced, nobody can claim it, and it says why, until somebody has looked."""
    await rolled_back(store, client)
    run = await store.get("r")
    late = Commit(run_id="r", token=run.token, expected=1, events=events("r", 1))
    await store.commit([late])
    assert "quarantined" in ((await store.get("r")).error or "")
    assert isinstance((await store.commit([late]))[0], Fenced)
    assert await store.claim_runs("w", 30) == []
    assert await store.claim_runs("w", 30, run_ids=["r"]) == []
    assert await store.readmit("r")
    assert not await store.readmit("r")
    assert [one.run.id for one in await store.claim_runs("w", 30)] == ["r"]


@pytest.mark.proves("I6")
async def test_a_run_that_went_back_is_not_claimed(
    store: RedisStore, client: Redis, clock: ManualClock
) -> None:
    """Whoever remembers does not go on with it."""
    await rolled_back(store, client)
    clock.advance(1000)
    assert await store.claim_runs("w", 30, run_ids=["r"]) == []
    assert "quarantined" in ((await store.get("r")).error or "")
    assert await store.delete("r")


async def there_and_back(store: RedisStore, other: MemoryStore) -> None:
    """What a mover in another process does, which this one hears nothing of."""
    layout = store.describe()
    async with single(prefix=str(layout["prefix"]), clock=store.clock) as mover:
        assert (await move_runs(mover, other, parse(""), address="other")).refused == {}
        assert (await move_runs(other, mover, parse(""), address="redis")).refused == {}


@pytest.mark.proves("I3", "I6")
async def test_a_run_that_has_come_back_has_not_gone_back(
    store: RedisStore, client: Redis, clock: ManualClock
) -> None:
    """A run that was moved away and back counts its revisions anew: whoever remembers greater ones
    goes on with it all the same, and still sees when Redis goes back behind the new ones."""
    await begin_runnable(store, "r")
    for refused in (True, False):  # known by a refusal, and by a claim
        claim = await take(store, "r")
        for _ in range(9):
            await done(store, Commit(run_id="r", token=claim.token, events=events("r", 1)))
        async with MemoryStore(clock=clock) as other:
            await there_and_back(store, other)
        if refused:
            late = Commit(run_id="r", token=claim.token, events=events("r", 1))
            assert isinstance((await store.commit([late]))[0], Fenced)
            assert (await store.get("r")).error is None
    [one] = await store.claim_runs("w", 30)
    assert (one.run.id, one.run.error) == ("r", None)
    key = f"{store.describe()['prefix']}:wf:r:state"
    before: Any = await client.hgetall(key)
    await done(store, Commit(run_id="r", token=one.claim.token, events=events("r", 1)))
    await client.hset(key, mapping=before)
    clock.advance(1000)
    assert await store.claim_runs("w", 30) == []
    assert "quarantined" in ((await store.get("r")).error or "")


@pytest.mark.proves("I6")
async def test_tokens_grow_although_the_counter_was_lost(
    store: RedisStore, client: Redis, clock: ManualClock
) -> None:
    """They follow the server's clock: a failover cannot give one out twice."""
    await begin_runnable(store, "r")
    first = await take(store, "r")
    await client.delete(f"{store.describe()['prefix']}:token")
    clock.advance(1000)
    store._server._floor = 0
    assert (await take(store, "r")).token > first.token


async def test_ended_runs_are_no_longer_on_any_shelf(store: RedisStore, client: Redis) -> None:
    """Indexes hold what lives, and what ended is filed once."""
    await begin_runnable(store, *[f"r{n}" for n in range(5)])
    for n in range(5):
        change = Change(status=Status.COMPLETED)
        await done(store, Commit(run_id=f"r{n}", change=change))
    prefix = store.describe()["prefix"]
    assert not await client.exists(f"{prefix}:runnable", f"{prefix}:held")
    assert await client.zcard(f"{prefix}:idx:ended") == 5
    assert await client.scard(f"{prefix}:idx:status:completed") == 5


@pytest.mark.proves("I13", "I23")
async def test_indexes_are_mended(store: RedisStore, client: Redis) -> None:
    """What somebody has broken by hand: runs are found, claimed and expired again, and only those."""
    await begin(store, "a", workflow="w", attributes={"n": 1}, runnable_at=await store.now())
    await begin(store, "a~1", parent="a")
    await begin_runnable(store, "held")
    await take(store, "held")
    await begin(store, "z")
    await finish(store, "z")
    assert await store.reconcile() == 0
    prefix = store.describe()["prefix"]
    for name in ("idx:workflow", "idx:parent", "idx:attr", "idx:ended", "runnable", "held"):
        await client.delete(f"{prefix}:{name}")
    await client.sadd(f"{prefix}:idx:status:failed", "a", "ghost")
    await client.zadd(f"{prefix}:idx:ids", {"ghost": 0})
    assert await store.reconcile() >= 9
    assert await store.reconcile() == 0
    assert not await client.exists(f"{prefix}:idx:status:failed")
    for query in (
        RunQuery(workflow="w"),
        RunQuery(attributes={"n": 1}),
    ):
        assert [run.id for run in (await store.find(query)).items] == ["a"]
    assert [run.id for run in (await store.find(RunQuery(parent="a"))).items] == ["a~1"]
    assert [one.run.id for one in await store.claim_runs("w", 30, limit=9)] == ["a"]
    assert await store.expire(await store.now() + timedelta(seconds=1)) == ["z"]


async def test_indexes_of_a_cluster_are_right(parted: RedisClusterStore) -> None:
    """There is nothing to mend after a life like any other."""
    await furnish(parted, "r")
    await finish(parted, "r")
    assert await parted.reconcile() == 0


class TestServerTime(Claims, Leases, Runnable, Tasks, Timers):
    """Without a clock the server's time decides; tests move an offset to it."""

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """A store that judges by the server's clock."""
        async with single() as store:
            yield store

    async def advance(self, store: Store, seconds: float) -> None:
        """Move the offset."""
        assert isinstance(store, RedisStore)
        store._server.offset += timedelta(seconds=seconds)


@pytest.mark.proves("I29")
async def test_time_is_the_servers(client: Redis) -> None:
    """Not that of the machine that asks."""
    async with single() as store:
        seconds, micros = await client.time()
        server = datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micros)
        assert abs(await store.now() - server) < timedelta(seconds=60)
        store._server.offset = timedelta(days=1)
        assert await store.now() - server > timedelta(hours=23)
    await asyncio.sleep(0)
