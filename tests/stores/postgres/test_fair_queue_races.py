"""Those who take, extend, admit, end and debounce, in transactions that overlap."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import outlast
from outlast.engine.runner.admission import admission
from outlast.errors import Fenced
from outlast.model import Task
from outlast.model.queue_policy import QueuePolicy
from outlast.ports import SystemClock
from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.places import SCHEMA, FreshStore, direct

pytestmark = pytest.mark.server

EXTEND = f"SELECT verdict FROM {SCHEMA}.settle_delivery(NULL, 0, 'extend', $1, $2, 30000000, 5, '')"
PLACE = f"SELECT task_hash FROM {SCHEMA}.tasks WHERE owner IS NOT NULL"
SLEEP = (
    f"SELECT {SCHEMA}.put_key_to_sleep({SCHEMA}.now(NULL, 0), f, 'mail', 'k', $1) "
    f"FROM {SCHEMA}.policies AS f WHERE f.scope = 'mail'"
)
WAITERS = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
ENDED = f"SELECT claimed_until <= {SCHEMA}.now(NULL, 0) FROM {SCHEMA}.tasks WHERE owner IS NOT NULL"


@pytest.mark.proves("I22")
async def test_a_lease_that_is_extended_at_its_end_keeps_its_place() -> None:
    """While it is being extended nobody counts its place as free, though the old lease runs out before
    that is committed."""
    clock = SystemClock()
    async with FreshStore() as store, store.queue() as queue:
        await queue.set_policy(QueuePolicy(queue="mail", concurrency=1), by="test")
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


@pytest.mark.parametrize("ready", [0, 1])
async def test_a_line_with_a_task_never_sleeps_for_good(ready: int) -> None:
    """What kept a task from being taken has gone between two looks, and its wake-up was heard before the
    line was put to sleep: somebody looks again."""
    async with FreshStore() as store, store.queue() as queue:
        await queue.set_policy(QueuePolicy(queue="mail", key_concurrency=1), by="test")
        tasks = [Task(id=id, queue="mail", kind="step", name="send", key="k") for id in ("a", "b")]
        await queue.enqueue("mail", tasks)
        held = await queue.take("mail", owner="ann", visibility=30.0)
        assert held is not None
        await queue.ack(held.claim)
        async with asyncpg.create_pool(direct(), min_size=1) as pool:
            await pool.execute(f"DELETE FROM {SCHEMA}.fair_key_wakeups")
            await pool.execute(SLEEP, ready)
        assert await queue.take("mail", owner="ben", visibility=30.0) is not None


@outlast.workflow
async def billing(customer: str) -> str:
    return customer


async def test_many_who_debounce_in_several_processes() -> None:
    """Who finds the run locked by another who asks for it too tries again, and is not turned away."""
    async with FreshStore() as here, PostgresStore(direct(), schema=SCHEMA) as there:
        apps = [outlast.App(store, workflows=[billing]) for store in (here, there)]
        async with apps[0], apps[1]:
            asked = [
                app.client.debounce(billing(f"{n}"), key="a", quiet=600)
                for n in range(20)
                for app in apps
            ]
            assert {run.id for run in await asyncio.gather(*asked)} == {"billing.a.1"}


async def test_who_ends_a_run_and_who_admits_it_do_not_wait_for_each_other() -> None:
    """Both lock the run before its tasks, so that neither has to be cut off."""
    clock = SystemClock()
    async with FreshStore() as store, outlast.App(store) as app, store.queue() as queue:
        await app.client.queues.pause("bills")
        run = await app.start(billing("ann"), queue="bills")
        await app.client.queues.resume("bills")
        ticket = await queue.take("bills/@billing", owner="doorman", visibility=30.0)
        assert ticket is not None
        ann, watcher = await asyncpg.connect(direct()), await asyncpg.connect(direct())
        try:
            async with ann.transaction():
                await ann.fetch(f"SELECT FROM {SCHEMA}.runs WHERE id = $1 FOR UPDATE", run.id)
                send = store.send([admission(ticket.task)], keeps=[ticket.claim])
                sending = asyncio.ensure_future(send)
                while not sending.done() and not await watcher.fetchval(WAITERS):
                    await clock.sleep(0.005)
                await ann.execute(f"DELETE FROM {SCHEMA}.tasks WHERE run_id = $1", run.id)
            with pytest.raises(Fenced):
                await sending
        finally:
            await ann.close()
            await watcher.close()
