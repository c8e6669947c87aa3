"""Taking in turns costs what it hands out, however many tasks and keys wait: rows are counted by the
server, on tables that have never been analysed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.model.run_contents import Delivery, Task
from outlast.stores.postgres import PostgresQueue
from outlast.testing.virtual_clock import ManualClock
from tests.stores.postgres.places import direct

pytestmark = pytest.mark.server

QUEUES = ("gpu/render", "gpu/train")
RULES = QueuePolicy(
    queue="gpu",
    concurrency=5000,
    key_concurrency=2,
    rate=Rate(5000, 1000.0),
    key_rate=Rate(1000, 1000.0),
    weights={"k1": 2.0},
)
ENQUEUE = """
    INSERT INTO "{schema}".tasks (task_hash, queue, run_id, id, uid, kind, name, step, definition,
                                  priority, attempt, enqueued_at, ready_at, fair_key)
    SELECT sha256(convert_to(x.queue, 'UTF8') || '\\x0000'::bytea || convert_to(x.id, 'UTF8')),
           x.queue, '', x.id, '', '', '', '', '', 0, 0, 0, {ready_at}, 'k' || x.n % {keys}
    FROM (SELECT n, '{mark}' || n AS id, 'gpu/' || (ARRAY['render', 'train'])[1 + n % 2] AS queue
          FROM generate_series(1, {number}) AS n) AS x
"""
READ = """
    SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE schemaname = $1
"""
SCANNED = """
    SELECT relname, seq_scan FROM pg_stat_user_tables
    WHERE schemaname = $1 AND seq_scan > 0 AND relname NOT IN ('migrations', 'installed_functions')
"""


class Bench:
    """A queue with one connection, so that what it has read is known at once."""

    def __init__(self, pool: Any, schema: str) -> None:
        self.schema = schema
        self._pool = pool
        self.queue = PostgresQueue(pool, schema=schema, clock=ManualClock())

    async def fill(self, mark: str, *, number: int, keys: int, ready_at: int = 0) -> None:
        """Many tasks, by one statement."""
        await self._pool.execute(
            ENQUEUE.format(
                schema=self.schema, mark=mark, number=number, keys=keys, ready_at=ready_at
            )
        )

    async def take(self, limit: int) -> list[Delivery]:
        """Take from both queues."""
        return await self.queue.take_many(QUEUES, owner="w", visibility=500.0, limit=limit)

    async def cost(self, limit: int) -> int:
        """How many rows one take and the acks of what it gives read from indexes, on average."""
        before, handed = await self.told(READ), 0
        for _ in range(10):
            for one in await self.take(limit):
                await self.queue.ack(one.claim)
                handed += 1
        assert handed == 10 * limit
        return int(await self.told(READ) - before) // 10

    async def told(self, sql: str) -> Any:
        """What the server has counted up to now."""
        await self._pool.fetch("SELECT pg_stat_force_next_flush()")
        return await self._pool.fetchval(sql, self.schema)

    async def scanned(self) -> dict[str, int]:
        """Tables that were read from end to end, and how often."""
        await self._pool.fetch("SELECT pg_stat_force_next_flush()")
        return dict(await self._pool.fetch(SCANNED, self.schema))


@pytest.fixture
async def bench(schema: str) -> AsyncIterator[Bench]:
    """An empty queue with rules."""
    pool = await asyncpg.create_pool(direct(), min_size=1, max_size=1)
    async with pool:
        bench = Bench(pool, schema)
        async with bench.queue:
            for table in ("tasks", "fair_keys", "fair_key_wakeups", "policies", "task_starts"):
                await pool.execute(f'ALTER TABLE "{schema}".{table} SET (autovacuum_enabled = off)')
            await bench.queue.set_policy(RULES, by="test")
            yield bench


@pytest.mark.proves("I31")
async def test_no_call_reads_a_whole_table(bench: Bench) -> None:
    """Neither who adds nor who takes, returns, or only looks."""
    queue = bench.queue
    await bench.fill("x", number=500, keys=50)
    before = await bench.scanned()
    await queue.enqueue(QUEUES[0], [Task(id=f"t{n}", key=f"k{n % 9}") for n in range(30)])
    taken = await bench.take(40)
    assert len(taken) == 40
    await queue.ack(taken[0].claim)
    await queue.nack(taken[1].claim)
    await queue.nack(taken[2].claim, requeue=False)
    await queue.redrive(taken[2].task.queue)
    await queue.extend(taken[3].claim, 20)
    await bench.take(10)
    await queue.stats("gpu")
    await queue.next_ready_at(QUEUES)
    await queue.policy_changes("gpu")
    after = await bench.scanned()
    assert {name: count for name, count in after.items() if count != before.get(name, 0)} == {}


@pytest.mark.proves("I31", "I22")
async def test_a_deep_queue_costs_what_a_shallow_one_does(bench: Bench) -> None:
    """100,000 more tasks of 1,000 keys change nothing, a quarter of them delayed, another of one key."""
    await bench.fill("x", number=2000, keys=100)
    shallow: dict[int, int] = {}
    for _ in range(2):  # so that every plan is the one that stays
        shallow = {limit: await bench.cost(limit) for limit in (1, 20)}
    await bench.fill("many", number=50_000, keys=1000)
    await bench.fill("later", number=25_000, keys=1000, ready_at=2**62)
    await bench.fill("one", number=25_000, keys=1)
    for _ in range(3):  # the keys that are new wake once, and what sent it for them is gone
        await bench.take(1)
    deep = {limit: await bench.cost(limit) for limit in (1, 20)}
    # Fifty times as much waits. A transaction that another test holds open keeps dead entries in the
    # indexes for a while, and those are read too.
    assert deep[1] < 3 * shallow[1] + 100
    assert deep[20] < 3 * shallow[20] + 100


@pytest.mark.proves("I31")
async def test_to_see_a_deep_queue_costs_what_is_counted(bench: Bench) -> None:
    """However many wait, ready or delayed, of however many keys: what is told is true."""

    async def cost() -> int:
        before = await bench.told(READ)
        stats = await bench.queue.stats("gpu", counted=20)
        assert stats.at_least == ("ready", "delayed", "keys")
        assert await bench.queue.next_ready_at(QUEUES) is not None
        return int(await bench.told(READ) - before)

    await bench.fill("x", number=6000, keys=200)
    await bench.fill("late", number=6000, keys=200, ready_at=2**62)
    await bench.take(1)
    shallow = await cost()
    await bench.fill("more", number=15_000, keys=1000)
    await bench.fill("later", number=20_000, keys=1000, ready_at=2**62)
    await bench.take(1)
    assert await cost() < 2 * shallow + 100


@pytest.mark.proves("I22")
async def test_a_newcomer_is_heard_among_many(bench: Bench) -> None:
    """Wake-ups that gathered while nobody took are taken away in bounded numbers, and hold nobody up."""
    await bench.queue.enqueue(QUEUES[0], [Task(id=f"big{n}", key="big") for n in range(20)])
    await bench.told(
        f'INSERT INTO "{bench.schema}".fair_key_wakeups '
        f"SELECT 'gpu', 'gpu/render', 'big', true, true FROM generate_series(1, 20000) "
        "WHERE $1 <> ''"
    )
    await bench.queue.enqueue(QUEUES[1], [Task(id="small", key="small")])
    assert {one.task.key for one in await bench.take(2)} == {"big", "small"}
    left = f"SELECT count(*) FROM \"{bench.schema}\".fair_key_wakeups WHERE $1 <> ''"
    assert 0 < await bench.told(left) < 20_000
    for _ in range(4):
        await bench.take(1)
    assert await bench.told(left) == 0
