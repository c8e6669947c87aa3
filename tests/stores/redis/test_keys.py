"""The keys of the Redis store: named as the seeds have it, injective, and gone when a run goes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from outlast.errors import InvalidValue
from outlast.model import Activity, Change, Commit, Run, Status, Timer
from outlast.stores.redis import RedisClusterStore, RedisStore
from outlast.stores.redis.keys import (
    Layout,
    activity_name,
    encoded,
    key_name,
    of_run,
    sortable,
    timer_name,
)
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.run_contents import furnish
from outlast.testkit.conformance.scenario import begin, done, events, finish
from tests.stores.redis.servers import CLUSTER, clustered, single, url_of

pytestmark = pytest.mark.server


def prefix_of(store: RedisStore) -> str:
    """The prefix of a store."""
    return str(store.describe()["prefix"])


async def keys_of(client: Redis, prefix: str) -> set[str]:
    """All keys under a prefix, by a scan of the whole keyspace."""
    return {
        key.decode()
        async for key in client.scan_iter(match="*", count=1000)
        if key.startswith(prefix.encode())
    }


@pytest.mark.proves("M-29", "D-14")
async def test_the_prefix_is_outlast_unless_told(client: Redis) -> None:
    """`outlast` by default, another by constructor or URL; one that could reach elsewhere is refused."""
    assert RedisStore("redis://localhost").describe()["prefix"] == "outlast"
    assert RedisStore("redis://localhost?prefix=shop:eu").describe()["prefix"] == "shop:eu"
    for bad in ("a{b}", "a:", ":a", "a b", "x" * 300, "a::b"):
        with pytest.raises(InvalidValue):
            RedisStore("redis://localhost", prefix=bad)


@pytest.mark.proves("M-19", "M-30", "M-31", "M-32", "M-39")
async def test_state_events_and_counter(store: RedisStore, client: Redis) -> None:
    """The record is a hash, the history a sorted set by sequence, the counter a key of its own; an
    append moves all three."""
    await begin(store, "r", *events("r", 2), workflow="ship")
    await store.append("r", events("r", 1))
    prefix = prefix_of(store)
    state = await client.hgetall(f"{prefix}:wf:r:state")
    assert (state[b"workflow"], state[b"sequence"], state[b"status"]) == (b"ship", b"3", b"pending")
    found: Any = await client.zrange(f"{prefix}:wf:r:events", 0, -1, withscores=True)
    assert [score for _, score in found] == [1, 2, 3]
    assert [int(member.split(b" ")[0]) for member, _ in found] == [1, 2, 3]
    assert await client.get(f"{prefix}:wf:r:seq") == b"3"


@pytest.mark.proves("M-33", "M-35", "M-36")
async def test_activities_and_idempotency_keys(store: RedisStore, client: Redis) -> None:
    """An activity's state, the key of a start, the key of an activity."""
    await begin(store, "r")
    await store.save_activity(Activity(id="a:1", run_id="r"))
    await store.bind_start("order-7", "r")
    await store.first_activity("a:1", run_id="r")
    prefix = prefix_of(store)
    assert await client.hget(f"{prefix}:act:a%3A1:state", "run") == b"r"
    assert await client.hget(f"{prefix}:idem:start:order-7", "value") == b"r"
    assert await client.hget(f"{prefix}:idem:act:a%3A1", "value") == b"1"


@pytest.mark.proves("M-34", "D-16", "I13")
async def test_a_run_is_in_the_set_of_its_status(store: RedisStore, client: Redis) -> None:
    """And in no other, whenever its status changes, until it is deleted."""
    await begin(store, "r")
    prefix = prefix_of(store)
    for status in (Status.RUNNING, Status.WAITING, Status.HALTED, Status.COMPLETED):
        await done(store, Commit(run_id="r", change=Change(status=status)))
        there = {
            one.value
            for one in Status
            if await client.sismember(f"{prefix}:idx:status:{one.value}", "r")
        }
        assert there == {status.value}
    await store.delete("r")
    assert not await client.exists(f"{prefix}:idx:status:completed")


@pytest.mark.proves("M-37", "M-38", "M-40")
async def test_timers(store: RedisStore, client: Redis) -> None:
    """A record per timer, and the due ones by milliseconds; firing takes it off in the same step."""
    await begin(store, "r")
    at = await store.now() + timedelta(seconds=5)
    await store.schedule_timer(Timer(run_id="r", id="t:1", fire_at=at))
    prefix = prefix_of(store)
    due = await client.zrange(f"{prefix}:timers:due", 0, -1, withscores=True)
    assert due == [(b"r:t:1", at.timestamp() * 1000)]
    assert await client.hget(f"{prefix}:timer:r:t%3A1", "fired") == b"0"
    assert await store.mark_timer_fired("r", "t:1")
    assert not await store.mark_timer_fired("r", "t:1")
    assert await client.hget(f"{prefix}:timer:r:t%3A1", "fired") == b"1"
    assert not await client.exists(f"{prefix}:timers:due")


@pytest.mark.proves("I25", "D-20", "D-11", "C-07")
async def test_delete_leaves_no_key(store: RedisStore, client: Redis) -> None:
    """A scan of the whole keyspace finds what it found before the run was, and the counters."""
    before = await keys_of(client, prefix_of(store))
    await furnish(store, "r")
    assert len(await keys_of(client, prefix_of(store))) > 30
    await store.delete("r")
    left = await keys_of(client, prefix_of(store)) - before
    assert left <= {f"{prefix_of(store)}:{name}" for name in ("token", "task:order")}


@pytest.mark.proves("I25", "I26", "C-05")
async def test_expiry_leaves_no_key(store: RedisStore, client: Redis, clock: ManualClock) -> None:
    """What goes by age goes whole."""
    before = await keys_of(client, prefix_of(store))
    await furnish(store, "r")
    await finish(store, "r")
    await finish(store, "r~child")
    clock.advance(100)
    assert await store.expire(clock.now()) == ["r"]
    left = await keys_of(client, prefix_of(store)) - before
    assert left <= {f"{prefix_of(store)}:{name}" for name in ("token", "task:order")}


TEXTS = [
    "",
    "}x",
    "{x",
    "a:state",
    "a",
    "a%3Astate",
    "%",
    "%25",
    "\x00",
    "👩‍👩‍👧" * 11,
    "a\nb",
    "{0}",
]


@pytest.mark.proves("I27")
@given(st.sampled_from(TEXTS) | st.text(), st.sampled_from(TEXTS) | st.text())
def test_names_are_injective(one: str, other: str) -> None:
    """Different texts give different names, and nothing in a name separates or tags."""
    assert (encoded(one) == encoded(other)) == (one == other)
    assert not set(encoded(one)) & set(":{}\x00\n")
    assert encoded(one)
    assert (timer_name(one, other) == timer_name(other, one)) == (one == other)
    assert (key_name(one, other) == key_name(other, one)) == (one == other)


@pytest.mark.proves("I27")
@given(st.sampled_from(TEXTS) | st.text())
def test_families_of_names_do_not_meet(text: str) -> None:
    """A name of one thing is never the name of another."""
    names = [of_run(text, "state"), of_run(text, "events"), activity_name(text)]
    names += [key_name("start", text), key_name("act", text), key_name("activity", text)]
    names += [timer_name(text, text), key_name(text, "x")]
    assert len(set(names)) == len(names)


@given(st.integers(-(10**19), 10**19), st.integers(-(10**19), 10**19))
def test_numbers_sort_as_text(one: int, other: int) -> None:
    """Also negative ones, and those that are no doubles."""
    assert (sortable(one) < sortable(other)) == (one < other)


@pytest.mark.proves("I27")
async def test_a_cluster_has_a_partition_in_one_slot(parted: RedisClusterStore) -> None:
    """Every key of a tree has the tag of its partition, whatever its ids are made of."""
    await furnish(parted, "r")
    server = await parted._session.server()
    replies = await server._link.everywhere([(b"KEYS", f"{prefix_of(parted)}*".encode())])  # type: ignore[union-attr]
    keys = [key.decode() for (reply,) in replies for key in reply]
    part = server.layout.part_of("r")
    tags = {key.removeprefix(f"{prefix_of(parted)}:").partition(":")[0] for key in keys}
    assert tags <= {f"{{{n}}}" for n in range(4)}
    own = [key for key in keys if ":wf:" in key]
    assert own
    assert all(f":{{{part}}}:" in key for key in own if ":keys" not in key)


@pytest.mark.proves("I25")
async def test_delete_leaves_no_key_on_a_cluster(parted: RedisClusterStore) -> None:
    """Also what other partitions had for it."""
    await furnish(parted, "r")
    for n in range(8):
        await parted.remember("scope", f"k{n}", "v", run_id="r")
    await parted.delete("r")
    server = await parted._session.server()
    replies = await server._link.everywhere([(b"KEYS", f"{prefix_of(parted)}*".encode())])  # type: ignore[union-attr]
    names = {key.decode().rpartition("}:")[2] for (reply,) in replies for key in reply}
    assert names <= {"meta", "token", "task:order", "outbox:number", "relayed"}


def test_a_layout_has_its_limits() -> None:
    """A number of partitions that cannot be is refused before anything is asked."""
    for bad in (0, -1, 5000):
        with pytest.raises(InvalidValue):
            Layout("p", bad, tagged=True)
    with pytest.raises(InvalidValue):
        RedisStore("redis://localhost", partitions=2)


async def test_ids_of_all_kinds_are_kept_apart(store: RedisStore) -> None:
    """Ids that would be patterns, tags or suffixes elsewhere."""
    ids = ["%", "%25", "a*", "a", "[a]", "a?", "'", "é", "👩‍👩‍👧", "a state", "x" * 255]
    for id in ids:
        await begin(store, id, *events(id, 1))
    for id in ids:
        run = await store.get(id)
        assert (run.id, run.sequence) == (id, 1)


def test_servers_are_there() -> None:
    """The cluster is one."""
    assert url_of(CLUSTER).startswith("redis+cluster://")
    assert isinstance(clustered(), RedisClusterStore)
    assert not isinstance(single(), RedisClusterStore)


def test_a_run_id_is_a_key_part_as_it_is() -> None:
    """People find a run by its id in redis-cli."""
    assert of_run("order-7", "state") == "wf:order-7:state"
    assert Run(id="order-7").id in of_run("order-7", "events")
