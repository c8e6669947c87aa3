"""PostgreSQL: what is locked is waited for, and nothing that has ended is done again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.errors import Busy
from outlast.model import Event
from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.places import SCHEMA, FreshStore, ask, direct
from tests.stores.postgres.test_liveness import listening

pytestmark = pytest.mark.server

LEASE = 20.0
CHILDREN = 200
done: Counter[str] = Counter()
charging, is_locked = asyncio.Event(), asyncio.Event()


@outlast.step
async def note(number: int) -> int:
    done[f"kid {number}"] += 1
    return number


@outlast.workflow
async def kid(number: int) -> int:
    return await note(number)


@outlast.workflow
async def family() -> int:
    return sum(await asyncio.gather(*(kid(n) for n in range(CHILDREN))))


@outlast.step
async def charge() -> str:
    done["charge"] += 1
    charging.set()
    await is_locked.wait()
    return "charged"


@outlast.step(at_most_once=True)
async def charge_once() -> str:
    done["charge once"] += 1
    return "charged"


@outlast.workflow
async def order() -> list[str]:
    return [await charge(), await charge_once()]


@pytest.fixture
async def here() -> AsyncIterator[PostgresStore]:
    """A store on the server's own time."""
    done.clear()
    charging.clear()
    is_locked.clear()
    async with FreshStore() as store:
        yield store


@pytest.mark.proves("I4", "I10")
async def test_children_that_end_together_on_two_workers_are_done_once(here: PostgresStore) -> None:
    """Their last commits all send to the parent: they wait for its row, and for each other."""
    workflows: list[Any] = [family, kid]
    async with (
        PostgresStore(direct(), schema=SCHEMA) as there,
        outlast.App(here, workflows=workflows, lease=LEASE) as one,
        outlast.App(there, workflows=workflows, lease=LEASE),
    ):
        run = await one.start(family(), id="f", here=False)
        assert await run.result(timeout=60) == sum(range(CHILDREN))
    assert set(done.values()) == {1}


@pytest.mark.proves("I4", "I10")
async def test_a_transaction_that_is_left_open_after_a_signal_costs_time_alone(
    here: PostgresStore,
) -> None:
    """The commits of the run wait until it ends: nothing is done twice, nor given up."""
    async with outlast.App(here, workflows=[order], lease=LEASE) as app:
        ours = await asyncpg.connect(direct())
        await app.start(order(), id="o", here=False)
        await charging.wait()
        async with ours.transaction():
            await app.on(ours).get("o").signal("note", "hello")
            is_locked.set()
            with pytest.raises(Busy, match="a transaction of your own"):
                await app.get("o").signal("note", "from outside", timeout=1)
        await ours.close()
        assert await app.get("o").result(timeout=LEASE) == ["charged", "charged"]
    assert done == {"charge": 1, "charge once": 1}


async def test_who_appends_may_wait_for_the_lock_in_the_database(store: PostgresStore) -> None:
    """With a timeout; without one it is told at once."""
    await store.append("log", [Event(type="x", run_id="log")])
    other = await asyncpg.connect(direct())
    lock = other.transaction()
    await lock.start()
    await other.execute(f"SELECT FROM {SCHEMA}.runs WHERE id = 'log' FOR UPDATE")
    with pytest.raises(Busy):
        await store.append("log", [Event(type="y", run_id="log")])
    waiting = asyncio.create_task(store.append("log", [Event(type="y", run_id="log")], timeout=60))
    blocked = (
        "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%lock_runs%'"
    )
    async with asyncio.timeout(20):
        while not await ask(blocked):  # noqa: ASYNC110 - the server says when
            await asyncio.sleep(0.01)
    await lock.rollback()
    assert await waiting == 2
    await other.close()


@pytest.mark.proves("I5")
async def test_a_listening_session_that_is_cut_off_is_not_a_death(here: PostgresStore) -> None:
    """The sessions that claim and renew say that the worker lives."""
    async with PostgresStore(direct(), schema=SCHEMA) as worker:
        await listening(worker)
        await worker.claim_runs("w", 3600)
        assert await ask(f"SELECT FROM {SCHEMA}.owners WHERE owner = 'w'")
        # It is not made again: there is no connection left for its role, for instance.
        worker.database.liveness._own.clear()
        pid = worker.database.liveness._session.get_server_pid()
        await ask(f"SELECT pg_terminate_backend({pid})")
        async with asyncio.timeout(20):
            while await ask(f"SELECT FROM pg_stat_activity WHERE pid = {pid}"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        for _ in range(3):
            found = await here.database._end_leases(timedelta(0), timedelta(0))
            assert not found
        assert not await here.owner_gone("w")
    assert await here.owner_gone("w") == bool(
        await ask(f"SELECT FROM {SCHEMA}.owners WHERE owner = 'w'")
    )
