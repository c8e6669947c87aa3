"""Partitions: what a run has for a run elsewhere arrives, once, whoever dies on the way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from outlast.errors import NotFound, RunClosed
from outlast.model import Commit, Committed, Item, Run, Send, Start
from outlast.model.commit_rules import WakeupKind
from outlast.model.run_contents import Receipt
from outlast.stores.redis import RedisClusterStore
from outlast.stores.redis.commit import commit_all
from outlast.stores.redis.outbox import relay, waiting
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.scenario import begin, done, events, finish, outcome_of, signal
from tests.stores.redis.servers import again

pytestmark = pytest.mark.server


def elsewhere(store: RedisClusterStore, run_id: str, *, stem: str = "x") -> str:
    """A run id whose partition is another."""
    layout = store._server.layout
    ids = (f"{stem}{n}" for n in range(1000))
    return next(id for id in ids if layout.part_of(id) != layout.part_of(run_id))


async def committed_only(store: RedisClusterStore, commit: Commit) -> Committed:
    """Commit, and die before anything is carried over."""
    server = await store._session.server()
    outcomes, posted = await commit_all(server, [commit], atomic=False, timeout=None)
    assert posted
    assert isinstance(outcomes[0], Committed)
    return outcomes[0]


@pytest.mark.proves("I12", "I16", "C-17")
async def test_items_for_another_partition_arrive_with_the_commit(
    parted: RedisClusterStore,
) -> None:
    """When the commit is answered, its items are there; those that cannot arrive are told."""
    other = elsewhere(parted, "r")
    gone = elsewhere(parted, "r", stem="gone")
    for id in ("r", other):
        await begin(parted, id)
    sends = (signal(other, data=Raw(b"[1]")), signal(gone))
    written = await done(parted, Commit(run_id="r", sends=sends))
    assert written.undelivered == (sends[1].item.id,)
    (item,) = await parted.inbox(other)
    assert (item.data, item.id) == (Raw(b"[1]"), sends[0].item.id)
    assert (await parted.get(other)).runnable_at is not None


@pytest.mark.proves("I12", "I16")
@pytest.mark.parametrize("what", ["item", "child"])
async def test_what_arrives_elsewhere_sends_a_wakeup_after_its_arrival(
    parted: RedisClusterStore, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that the commit has woken polls before the entry is there: it needs another wake-up."""
    other = elsewhere(parted, "r")
    await begin(parted, "r")
    if what == "item":
        await begin(parted, other)
        commit = Commit(run_id="r", sends=(signal(other),))
    else:
        commit = Commit(run_id="r", starts=(Start(Run(id=other, parent="r"), events(other, 1)),))
    server, notifier = await parted._session.server(), parted.notifier
    at_arrival: list[int] = []
    calls = server.calls

    async def observed(asked: Any, *, timeout: float | None) -> Any:
        found = await calls(asked, timeout=timeout)
        if any(call.script == "receive_entry" for call in asked):
            at_arrival.append(notifier.wakeups_for(WakeupKind.RUNS))
        return found

    monkeypatch.setattr(server, "calls", observed)
    reached: list[str] = []
    end = notifier.listen(lambda runs: reached.extend(runs or ()))
    await done(parted, commit)
    await asyncio.sleep(0)
    end()
    assert at_arrival
    assert notifier.wakeups_for(WakeupKind.RUNS) > at_arrival[-1]
    assert reached.count(other) == (2 if what == "item" else 0)


@pytest.mark.proves("I3", "I12", "I16", "I23")
async def test_what_a_dead_process_left_is_carried_over_once(
    parted: RedisClusterStore, clock: ManualClock
) -> None:
    """The next one who looks for work finds it in the outbox; carried twice it is taken once."""
    other = elsewhere(parted, "r")
    await begin(parted, "r")
    await begin(parted, other)
    await committed_only(parted, Commit(run_id="r", sends=(signal(other), signal(other))))
    assert await parted.inbox(other) == []
    survivor = again(parted)
    async with survivor:
        claimed = await survivor.claim_runs("w", 30, run_ids=["nobody"])
        assert claimed == []
        assert [item.number for item in await survivor.inbox(other)] == [1, 2]
        assert await waiting(await survivor._session.server(), timeout=None) == []


@pytest.mark.proves("I12", "I16", "C-03")
async def test_carriers_that_race_deliver_once_and_in_order(parted: RedisClusterStore) -> None:
    """However many carry the same outbox, items arrive once, in the order of the commits."""
    other = elsewhere(parted, "r")
    await begin(parted, "r")
    await begin(parted, other)
    ids = []
    for _ in range(10):
        send = signal(other)
        ids.append(send.item.id)
        await committed_only(parted, Commit(run_id="r", sends=(send,)))
    server = await parted._session.server()
    source = server.layout.part_of("r")
    await asyncio.gather(*(relay(server, [source], set(), timeout=None) for _ in range(8)))
    assert [item.id for item in await parted.inbox(other)] == ids


@pytest.mark.proves("I12", "I16")
async def test_an_entry_that_comes_late_is_not_taken_again(parted: RedisClusterStore) -> None:
    """Not even by the next life of the run: it was taken in by the one before."""
    other = elsewhere(parted, "r")
    await begin(parted, "r")
    await begin(parted, other)
    await committed_only(parted, Commit(run_id="r", sends=(signal(other),)))
    server = await parted._session.server()
    source = server.layout.part_of("r")
    key = server.layout.key(source, "outbox")
    (left,) = await server.commands([(source, (b"HGETALL", key))], timeout=None, writes=False)
    flat: list[Any] = (
        [one for pair in left.items() for one in pair] if isinstance(left, dict) else left
    )
    await relay(server, [source], set(), timeout=None)
    await parted.delete(other)
    await begin(parted, other)
    await server.commands([(source, (b"HSET", key, *flat))], timeout=None, writes=True)
    await relay(server, [source], set(), timeout=None)
    assert await parted.inbox(other) == []


@pytest.mark.proves("I21", "I12")
async def test_a_child_with_an_id_of_its_own_begins_elsewhere(parted: RedisClusterStore) -> None:
    """Through the outbox, once, however often its parent is replayed."""
    await begin(parted, "p")
    child = elsewhere(parted, "p")
    start = Start(Run(id=child, parent="p", input=Raw(b"7")), events(child, 2))
    await done(parted, Commit(run_id="p", starts=(start,)))
    record = await parted.get(child)
    assert (record.parent, record.sequence, record.input) == ("p", 2, Raw(b"7"))
    await parted.append(child, events(child, 1))
    await done(parted, Commit(run_id="p", starts=(start,)))
    assert await parted.last_sequence(child) == 3


async def test_sends_to_many_partitions(parted: RedisClusterStore) -> None:
    """Each gets its own, and each answer is at its place."""
    ids = [f"r{n}" for n in range(12)]
    for id in ids:
        await begin(parted, id)
    await finish(parted, "r3")
    sends = [signal(id) for id in (*ids, "missing")]
    receipts = await parted.send(sends)
    assert [type(one) for one in receipts] == [
        *([Receipt] * 3), RunClosed, *([Receipt] * 8), NotFound,
    ]  # fmt: skip
    again = await parted.send(sends[:3])
    assert all(isinstance(one, Receipt) and one.again for one in again)


async def test_a_tree_lives_in_one_partition(parted: RedisClusterStore) -> None:
    """Children with their parent, so that a commit of the tree is one step."""
    layout = parted._server.layout
    assert len({layout.part_of(id) for id in ("p", "p~1", "p~1~a", "p~é")}) == 1
    assert len({layout.part_of(f"r{n}") for n in range(100)}) == layout.partitions


async def test_refusals_come_before_the_outbox(parted: RedisClusterStore) -> None:
    """A commit that is refused leaves nothing for anybody."""
    other = elsewhere(parted, "r")
    await begin(parted, "r")
    await begin(parted, other)
    send = Send(run_id=other, item=Item(kind="signal"))
    await outcome_of(parted, Commit(run_id="r", expected=5, sends=(send,)))
    assert await waiting(await parted._session.server(), timeout=None) == []
    assert await parted.inbox(other) == []


@pytest.mark.proves("M-43", "C-03")
async def test_slots_that_have_moved_are_found(parted: RedisClusterStore) -> None:
    """A node that does not have a slot says where it is; every commit happens once."""
    ids = [f"r{n}" for n in range(12)]
    for id in ids:
        await begin(parted, id)
    server = await parted._session.server()
    link: Any = server._link
    manager = link._client.nodes_manager
    primaries = link._client.get_primaries()
    for part in range(4):
        slot = link._client.keyslot(server.layout.prefixes[part])
        wrong = [one for one in primaries if one != manager.slots_cache[slot][0]]
        manager.slots_cache[slot] = [wrong[part % len(wrong)]]
    outcomes = await parted.commit([Commit(run_id=id, events=events(id, 1)) for id in ids])
    assert all(isinstance(one, Committed) and not one.again for one in outcomes)
    assert [await parted.last_sequence(id) for id in ids] == [1] * 12


@pytest.mark.proves("C-20", "I24")
async def test_a_broken_connection_to_a_node_is_made_again(parted: RedisClusterStore) -> None:
    """Whoever tries again finds the cluster as it is by then."""
    await begin(parted, "r")
    link: Any = (await parted._session.server())._link
    for node in link._client.get_nodes():
        for connection in node._connections:
            await connection.disconnect()
    link._is_stale = True
    assert await parted.append("r", events("r", 1)) == 1
