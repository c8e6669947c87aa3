"""Rules of queues on Redis: slots as leases, what is counted elsewhere, and what a dead process leaves."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import msgspec
import pytest

from outlast.errors import Fenced
from outlast.model import Change, Claim, Commit, Status, Task
from outlast.model.queue_policy import QueuePolicy
from outlast.model.run_contents import Delivery
from outlast.stores.redis import RedisClusterStore, RedisStore
from outlast.stores.redis.concurrency_slots import SlotRequest, extend, force
from outlast.stores.redis.keys import POLICY, TASKS, of_run
from outlast.stores.redis.packing import pack, pack_claim
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.tasks import task_field
from outlast.testing.virtual_clock import START, ManualClock
from outlast.testkit.conformance.scenario import begin, done
from tests.stores.redis.servers import clustered, single

pytestmark = pytest.mark.server

LEASE = 30.0
STEP = "gpu/render"


@pytest.fixture(params=["single", "cluster"])
async def store(request: pytest.FixtureRequest, clock: ManualClock) -> AsyncIterator[RedisStore]:
    """A store on one server, and one in partitions."""
    make = single if request.param == "single" else clustered
    async with make(clock=clock) as store:
        yield store


async def rule(
    store: RedisStore, *, concurrency: int | None = None, key_concurrency: int | None = None
) -> None:
    """Give the queue rules."""
    policy = QueuePolicy(queue="gpu", concurrency=concurrency, key_concurrency=key_concurrency)
    await store.queue().set_policy(policy, by="test")


def claim_on(run_id: str) -> Claim:
    """A claim on the task of a run, made up."""
    return Claim(owner="w", token=0, claimed_at=START, run_id=run_id, task_id=run_id, queue=STEP)


async def ask(store: RedisStore, *run_ids: str, priority: int = 0) -> None:
    """A task of each run, named like it. The runs are in all partitions."""
    for run_id in run_ids:
        await begin(store, run_id)
        task = Task(id=run_id, run_id=run_id, queue=STEP, key="k", priority=priority)
        await done(store, Commit(run_id=run_id, tasks=(task,)))


async def taken(store: RedisStore, limit: int = 10) -> list[Delivery]:
    """What is handed out now."""
    return await store.queue().take_many([STEP], owner="w", visibility=LEASE, limit=limit)


@pytest.mark.proves("I22", "I31")
async def test_keys_at_their_limit_sleep(clock: ManualClock) -> None:
    """Of many keys that have as many under way as they may, a take looks at none, however many there
    are; each is served as soon as one of it ends, in either way."""
    async with single(clock=clock) as store, store.queue() as queue:

        async def awake() -> int:
            command = (b"ZCARD", store._server.layout.key(0, "fair:turn"))
            (number,) = await store._server.commands([(0, command)], timeout=None, writes=False)
            return int(number)

        await rule(store, key_concurrency=1)
        names = [(f"k{n}", i) for n in range(300) for i in range(3)]
        await queue.enqueue(STEP, [Task(id=f"{key}-{i}", key=key) for key, i in names])
        first = await taken(store, 300)
        assert len({one.task.key for one in first}) == 300
        assert await taken(store) == []
        assert await awake() == 0
        await queue.ack(first[0].claim)
        assert await awake() == 1
        [second] = await taken(store)
        assert second.task.key == first[0].task.key
        await queue.extend(second.claim, 10 * LEASE)
        clock.advance(LEASE + 1)
        again = await taken(store, 1000)
        assert len(again) == 299
        assert second.task.key not in {one.task.key for one in again}


def elsewhere(store: RedisStore, count: int = 1) -> list[str]:
    """Ids of runs that are not where the queue's slots are."""
    layout = store._server.layout
    ids = (f"x{n}" for n in range(1000))
    return [id for id in ids if layout.part_of(id) != layout.part_for("gpu")][:count]


def wanted(store: RedisStore, claim: Claim, ticket: str) -> SlotRequest:
    """The slot of a task, as a script would ask for it."""
    slot = {"scope": "gpu", "key": "k", "ticket": ticket}
    name = msgspec.Raw(pack(task_field(claim).decode()))
    return SlotRequest(store._server.layout.part_for("gpu"), name, msgspec.Raw(pack(slot)))


async def ticket_of(server: Server, claim: Claim) -> str:
    """Under which slot a task is leased."""
    part = server.layout.part_of(claim.run_id)
    command = (b"HGET", server.layout.key(part, "task:state"), task_field(claim))
    (state,) = await server.commands([(part, command)], timeout=None, writes=False)
    return str(msgspec.msgpack.decode(state)["ticket"])


async def test_turns_are_taken_over_all_partitions(store: RedisStore) -> None:
    """A key with tasks of many runs has one line, wherever they are: it does not get a share in each
    partition, and a newcomer waits for one round."""
    queue = store.queue()
    for key in ("a", "b", "c"):
        tasks = [Task(id=f"{key}{n}", run_id=f"{key}-{n}", key=key) for n in range(40)]
        await queue.enqueue(STEP, tasks)
    many = Counter(one.task.key for one in await taken(store, 30))
    singles = [await taken(store, 1) for _ in range(30)]
    one_by_one = Counter(one.task.key for (one,) in singles)
    assert many == one_by_one == {"a": 10, "b": 10, "c": 10}
    await queue.enqueue(STEP, [Task(id="new", run_id="other", key="new")])
    assert "new" in {one.task.key for one in await taken(store, 4)}


@pytest.mark.proves("I22")
async def test_what_was_under_way_counts_when_rules_come(
    store: RedisStore, clock: ManualClock
) -> None:
    """Tasks that were handed out before a queue had rules are counted from then on."""
    await ask(store, *(f"r{n}" for n in range(6)))
    assert await store.claim_task("r5", "r5", "me") is not None
    held = await taken(store, 2)
    await rule(store, concurrency=3)
    assert await taken(store) == []
    await store.queue().ack(held[0].claim)
    assert len(await taken(store)) == 1
    clock.advance(LEASE + 1)
    assert len(await taken(store)) == 2  # one is held for good


@pytest.mark.proves("I22")
async def test_a_claim_for_good_has_its_slot_for_good(
    store: RedisStore, clock: ManualClock
) -> None:
    """Until its run ends, however long that takes; then the next one may begin."""
    await rule(store, concurrency=1)
    await ask(store, "r0", "r1", "r2")
    claim = await store.claim_task("r0", "r0", "me")
    assert claim is not None
    assert claim.expires_at is None
    clock.advance(86_400)
    assert await taken(store) == []
    await done(store, Commit(run_id="r0", change=Change(status=Status.COMPLETED)))
    assert len(await taken(store)) == 1


@pytest.mark.proves("I22")
@pytest.mark.parametrize("end", ["finish", "delete", "release"])
async def test_a_claim_that_is_kept_keeps_its_slot(
    store: RedisStore, clock: ManualClock, end: str
) -> None:
    """A task that was handed out and then kept for good counts until it ends, in whatever way."""
    await rule(store, key_concurrency=1)
    await ask(store, "r0", "r1", "r2", "r3")
    [held] = await taken(store)
    await store.send([], keeps=[held.claim])
    clock.advance(86_400)
    assert await taken(store) == []
    assert await store.reconcile() == 0
    assert await taken(store) == []
    match end:
        case "finish":
            await store.send([], finishes=[held.claim])
        case "delete":
            await store.delete(held.task.run_id)
        case "release":
            assert await store.release([held.claim]) == [True]
    assert len(await taken(store)) == 1
    assert await taken(store) == []


@pytest.mark.proves("I22")
async def test_renewing_a_claim_renews_its_slot(store: RedisStore, clock: ManualClock) -> None:
    """Through the store as through the queue."""
    await rule(store, concurrency=2)
    await ask(store, *(f"r{n}" for n in range(5)))
    claims = [one.claim for one in await taken(store)]
    for _ in range(4):
        clock.advance(LEASE * 2 / 3)
        renewed = await store.renew(claims, LEASE)
        claims = [claim for claim in renewed if claim is not None]
        assert len(claims) == 2
        assert await taken(store) == []
    clock.advance(LEASE + 1)
    assert len(await taken(store)) == 2


@pytest.mark.proves("I22")
async def test_a_lease_that_has_ended_does_not_come_back(
    store: RedisStore, clock: ManualClock
) -> None:
    """Once somebody else has its place, one that was too slow is fenced, not one too many."""
    await rule(store, concurrency=1)
    ids = elsewhere(store, 2) if isinstance(store, RedisClusterStore) else ["r0", "r1"]
    await ask(store, ids[0])
    [slow] = await taken(store)
    clock.advance(LEASE + 1)
    await ask(store, ids[1], priority=-1)
    assert [one.task.id for one in await taken(store)] == [ids[1]]
    with pytest.raises(Fenced):
        await store.queue().extend(slow.claim, LEASE)
    assert await store.renew([slow.claim], LEASE) == [None]
    with pytest.raises(Fenced):
        await store.send([], keeps=[slow.claim])
    assert await taken(store) == []


@pytest.mark.proves("I22")
async def test_a_return_that_nobody_carried_is_found(clock: ManualClock) -> None:
    """A process that dies after its task has ended, before the slot is given back, leaves that to the
    next one who looks."""
    async with clustered(clock=clock) as store:
        await rule(store, concurrency=1)
        away, other = elsewhere(store, 2)
        await ask(store, away)
        [held] = await taken(store)
        await ask(store, other)
        server, claim = store._server, held.claim
        wish = {"claim": pack_claim(claim), "verb": "ack"}
        names = [*TASKS, of_run(away, "tasks")]
        call = Call("settle_delivery", server.layout.part_of(away), names, [pack(wish)])
        assert (await server.call(call, timeout=None))[2] == b"1"
        assert [one.task.id for one in await taken(store)] == [other]


@pytest.mark.proves("I22")
async def test_a_slot_without_a_task_ends(clock: ManualClock) -> None:
    """A process that dies with a slot before it has leased the task: the slot ends like a lease."""
    async with clustered(clock=clock) as store:
        await rule(store, concurrency=1)
        (away,) = elsewhere(store)
        await ask(store, away)
        server = store._server
        name = task_field(claim_on(away))
        wish = {
            "scope": "gpu",
            "queues": [STEP],
            "owner": "w",
            "lease": 30_000_000,
            "attempts": 3,
            "grants": [["k", name.decode(), 1, "ticket"]],
        }
        home = server.layout.part_for("gpu")
        call = Call("lease_tasks", home, ["token", *POLICY], [pack(wish)])
        _, [outcome], _ = await server.call(call, timeout=None)
        assert outcome[0] == b"granted"
        assert await taken(store) == []
        clock.advance(LEASE + 1)
        assert len(await taken(store)) == 1


@pytest.mark.proves("I22")
async def test_a_slot_that_was_to_be_kept_is_freed(clock: ManualClock) -> None:
    """A process that dies after its slot was made one without an end, before its claim was: the lease
    ends, and whoever wants the task frees it. The dead one is not heard any more."""
    async with clustered(clock=clock) as store:
        await rule(store, concurrency=1)
        (away,) = elsewhere(store)
        await ask(store, away)
        [held] = await taken(store)
        server = store._server
        slot = wanted(store, held.claim, await ticket_of(server, held.claim))
        assert await extend(server, [slot], None, timeout=None) == [""]
        clock.advance(LEASE + 5)
        [again] = await taken(store)
        assert again.task.id == away
        with pytest.raises(Fenced):
            await store.send([], keeps=[held.claim])
        await store.queue().ack(again.claim)


@pytest.mark.proves("I22")
@pytest.mark.parametrize("reconciles", [True, False])
async def test_slots_that_nobody_has_are_freed(store: RedisStore, *, reconciles: bool) -> None:
    """As after a restore from parts: a slot without an end, of a task that is not there. Who reconciles
    frees it, and who finds that nothing may begin."""
    await rule(store, concurrency=1)
    slot = wanted(store, claim_on("ghost"), "t")
    assert await force(store._server, slot, None, timeout=None) == ""
    await ask(store, "r0")
    if reconciles:
        assert await store.reconcile() == 1
        assert await store.reconcile() == 0
    assert len(await taken(store)) == 1


@pytest.mark.proves("I25")
async def test_delete_leaves_nothing_of_a_line(store: RedisStore, clock: ManualClock) -> None:
    """Waiting, delayed, claimed or dead: a run's tasks with a key leave no key behind."""
    await ask(store, "r0")
    later = Task(
        id="later", run_id="r0", queue=STEP, key="k", run_at=clock.now() + timedelta(hours=1)
    )
    await done(store, Commit(run_id="r0", tasks=(later, Task(id="held", run_id="r0", key="z"))))
    assert await store.claim_task("r0", "held", "me") is not None
    await store.delete("r0")
    link = store._server._link
    assert link is not None
    pattern = f"{store.describe()['prefix']}*".encode()
    found = [
        key.decode() for (keys,) in await link.everywhere([(b"KEYS", pattern)]) for key in keys
    ]
    names = {
        key.rpartition("}:")[2].removeprefix(f"{store.describe()['prefix']}:") for key in found
    }
    assert names <= {"meta", "token", "task:order"}
