"""Slots that move from node to node while somebody writes. The long campaign is `./dev prove`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from redis.crc import key_slot

from outlast.errors import TryAgain
from outlast.model import Commit, Committed
from outlast.stores.redis import RedisClusterStore
from outlast.stores.redis.keys import Layout
from outlast.testkit.conformance.scenario import begin, events
from tests.stores.redis.nodes import Nodes
from tests.stores.redis.servers import CLUSTER, clustered, url_of

pytestmark = pytest.mark.server

RUNS = [f"r{n}" for n in range(60)]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """The nodes of the cluster."""
    nodes = Nodes.around(urlsplit(url_of(CLUSTER)).port or 0)
    yield nodes
    nodes.close()


def last_slot(partitions: int) -> int:
    """The slot of the last of so many partitions. Other tests have fewer, and no key in it."""
    return key_slot(Layout("x", partitions, tagged=True).prefixes[-1])


@pytest.mark.proves("M-43", "C-03")
async def test_a_slot_on_its_way_is_asked_for_where_it_goes(nodes: Nodes) -> None:
    """Its old node answers ASK, its new one TRYAGAIN as long as keys may be missing; what waits for
    the end of the move is done there, once."""
    slot = last_slot(24)
    source, target = nodes.begin_move(slot, random.Random(1))
    asked = nodes.redirections()["ASK"]
    async with clustered(partitions=24) as store:
        assert nodes.redirections()["ASK"] > asked
        starting = [asyncio.create_task(begin(store, id)) for id in RUNS]
        await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
        nodes.end_move(slot, source, target)
        await asyncio.gather(*starting)
        await written_once(store)
    assert nodes.ask(target.port, "CLUSTER COUNTKEYSINSLOT", slot) > 0


@pytest.mark.proves("M-43", "C-03", "I3")
async def test_keys_that_move_under_a_writer_are_neither_lost_nor_written_twice(
    nodes: Nodes,
) -> None:
    """All keys of a slot go to another node while commits go on."""
    slot = last_slot(20)
    async with clustered(partitions=20) as store:
        for id in RUNS:
            await begin(store, id)
        transfer = asyncio.create_task(asyncio.to_thread(nodes.move, slot, random.Random(2)))
        made = 0
        while not transfer.done() or made < 3:
            await written_once(store, after=made)
            made += 1
        assert await transfer > 0
        for id in RUNS:
            assert [one.sequence for one in await store.history(id)] == list(range(1, made + 1))


async def written_once(store: RedisClusterStore, *, after: int = 0) -> None:
    """One more event in each run. What was not done is asked for again, as it is."""
    commits = [Commit(run_id=id, expected=after, events=events(id, 1)) for id in RUNS]
    for _ in range(100):
        try:
            outcomes = await store.commit(commits)
        except TryAgain:
            continue
        assert all(isinstance(one, Committed) for one in outcomes)
        return
    raise AssertionError("the slot does not arrive")
