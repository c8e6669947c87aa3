"""A lease near its end and somebody who takes, in transactions that overlap."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from outlast.model import Task
from outlast.model.flow import Flow
from outlast.ports import SystemClock
from tests.postgres.places import SCHEMA, FreshStore, direct

pytestmark = pytest.mark.server

EXTEND = f"SELECT verdict FROM {SCHEMA}.settle_1(NULL, 0, 'extend', $1, $2, 30000000, 5, '')"
PLACE = f"SELECT place FROM {SCHEMA}.tasks WHERE owner IS NOT NULL"
WAITERS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
ENDED = f"SELECT claimed_until <= {SCHEMA}.now_1(NULL, 0) FROM {SCHEMA}.tasks WHERE owner IS NOT NULL"


@pytest.mark.proves("I22")
async def test_a_lease_that_is_extended_at_its_end_keeps_its_place() -> None:
    """While it is being extended nobody counts its place as free, though the old lease runs out before
    that is committed."""
    clock = SystemClock()
    async with FreshStore() as store, store.queue() as queue:
        await queue.set_flow(Flow(queue="mail", concurrency=1), by="test")
        tasks = [Task(id=id, queue="mail", kind="step", name="send") for id in ("a", "b")]
        await queue.enqueue("mail", tasks)
        held = await queue.take("mail", owner="ann", visibility=1.0)
        assert held is not None
        ann, watcher = await asyncpg.connect(direct()), await asyncpg.connect(direct())
        try:
            async with ann.transaction():
                place = await watcher.fetchval(PLACE)
                assert await ann.fetchval(EXTEND, place, held.claim.token) == "done"
                while not await watcher.fetchval(ENDED):
                    await clock.sleep(0.02)
                taking = asyncio.ensure_future(queue.take("mail", owner="ben", visibility=30.0))
                while not taking.done() and not await watcher.fetchval(WAITERS):
                    await clock.sleep(0.02)
            assert await taking is None
        finally:
            await ann.close()
            await watcher.close()
        assert (await queue.stats("mail")).in_flight == 1
