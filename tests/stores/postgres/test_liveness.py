"""A process that dies is seen to be dead: others need not wait for its leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from multiprocessing.connection import Connection as Pipe

import pytest

from outlast.model import Claim, Commit, Run, Task
from outlast.model.times import NOW
from outlast.ports import SystemClock
from outlast.stores.postgres import PostgresStore, liveness
from tests.stores.postgres.places import SCHEMA, FreshStore, ask, direct, pooled
from tests.stores.sqlite_processes.crew import Member

pytestmark = pytest.mark.server

HOUR = 3600.0
CLOCK = SystemClock()


async def listening(store: PostgresStore) -> None:
    """Wait until a store has the session that holds its locks."""
    notifier = store.database.notifier
    while not notifier.is_listening:
        await notifier.wait(CLOCK, 0.05, since=notifier.wakeups)


@pytest.fixture
async def here() -> AsyncIterator[PostgresStore]:
    """A store that watches, and a run and a task that can be claimed."""
    async with FreshStore(notify=True) as store:
        await listening(store)
        await store.commit(
            [
                Commit(
                    run_id="r",
                    create=Run(id="r", runnable_at=NOW),
                    tasks=(Task(run_id="r", id="t"),),
                )
            ]
        )
        yield store


def claim_and_wait(pipe: Pipe, url: str, schema: str) -> None:
    """Claim all there is for an hour, say so, and live until killed."""

    async def live() -> None:
        async with PostgresStore(url, schema=schema) as store:
            await listening(store)
            assert await store.claim_runs("doomed", HOUR)
            assert await store.claim_task("r", "t", "doomed", ttl=HOUR)
            pipe.send("claimed")
            await asyncio.Event().wait()

    asyncio.run(live())


async def claimed_by(store: PostgresStore, owner: str) -> tuple[Claim, Claim]:
    """The run and the task, as soon as both can be had."""
    notifier = store.database.notifier
    run = task = None
    while run is None or task is None:
        wakeups = notifier.wakeups
        if run is None:
            run = next((one.claim for one in await store.claim_runs(owner, HOUR)), None)
        if task is None:
            task = await store.claim_task("r", "t", owner, ttl=HOUR)
        if run is None or task is None:
            await notifier.wait(CLOCK, 60, since=wakeups)
    return run, task


@pytest.mark.proves("I5", "I6")
async def test_a_killed_process_is_taken_over_before_its_lease_ends(here: PostgresStore) -> None:
    """`kill -9` of one that has leases of an hour: while it lives nothing can be had, and soon after
    its death all of it."""
    member = await asyncio.to_thread(Member, claim_and_wait, (direct(), SCHEMA))
    try:
        assert await asyncio.to_thread(member.pipe.recv) == "claimed"
        assert not await here.owner_gone("doomed")
        assert await here.claim_runs("heir", HOUR) == []
    finally:
        await asyncio.to_thread(member.kill)
    run, task = await claimed_by(here, "heir")
    assert (run.owner, task.owner) == ("heir", "heir")
    assert await here.owner_gone("doomed")


@pytest.mark.proves("I5")
async def test_who_begins_looks_at_once(
    here: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes the place of one that has died need not wait for its turn to look."""
    monkeypatch.setattr("outlast.stores.postgres.liveness.CHECK_INTERVAL_S", HOUR)
    member = await asyncio.to_thread(Member, claim_and_wait, (direct(), SCHEMA))
    assert await asyncio.to_thread(member.pipe.recv) == "claimed"
    await asyncio.to_thread(member.kill)
    await here.close()
    async with PostgresStore(direct(), schema=SCHEMA) as heir:
        run, task = await claimed_by(heir, "heir")
    assert (run.owner, task.owner) == ("heir", "heir")


@pytest.mark.proves("I5")
async def test_after_a_restart_of_the_server_nobody_is_judged_for_a_while(
    here: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All have lost their sessions then, and come back one by one; who is dead is found out later."""
    monkeypatch.setattr("outlast.stores.postgres.liveness.SETTLE_S", 100 * 365 * 86_400.0)
    member = await asyncio.to_thread(Member, claim_and_wait, (direct(), SCHEMA))
    assert await asyncio.to_thread(member.pipe.recv) == "claimed"
    await asyncio.to_thread(member.kill)
    end_leases = here.database._end_leases
    seen: list[bool] = []
    while len(seen) < 3 and not any(seen):  # its session may end a moment after it
        found = await end_leases(timedelta(0), timedelta(seconds=liveness.SETTLE_S))
        seen += [gone for name, gone in found if name == "doomed"]
    assert not any(seen)
    assert await here.claim_runs("heir", HOUR) == []
    monkeypatch.setattr("outlast.stores.postgres.liveness.SETTLE_S", 0.0)
    run, task = await claimed_by(here, "heir")
    assert (run.owner, task.owner) == ("heir", "heir")


async def test_who_lives_or_is_unknown_is_not_gone(here: PostgresStore) -> None:
    """Nobody is called dead who never had a lock to lose."""
    await here.claim_runs("w", HOUR)
    assert not await here.owner_gone("w")
    assert not await here.owner_gone("nobody")


async def test_a_session_that_was_cut_off_holds_its_owners_again(here: PostgresStore) -> None:
    """It is missing for a moment, and not judged in that moment."""
    await here.claim_runs("w", HOUR)
    [[pid]] = await ask(
        "SELECT l.pid FROM pg_locks AS l JOIN pg_stat_activity USING (pid) "
        "WHERE l.locktype = 'advisory' AND l.mode = 'ShareLock' AND pid = $1",
        here.database.liveness._session.get_server_pid(),
    )
    notifier = here.database.notifier
    wakeups = notifier.wakeups
    await ask(f"SELECT pg_terminate_backend({pid})")
    assert await notifier.wait(CLOCK, 60, since=wakeups)  # it has come back
    assert not await here.owner_gone("w")
    assert (await here.get("r")).owner == "w"


async def test_a_session_that_ends_while_owners_wait_for_it_fails_nobody(
    here: PostgresStore,
) -> None:
    """Who claims just then has its lease: it is held on the next session."""
    own = here.database.liveness
    async with own._lock:
        holding = asyncio.create_task(own.register("late"))
        await asyncio.sleep(0)  # it waits for its turn now
        own.detach()
    await holding
    assert "late" not in own._registered


async def test_who_closes_is_not_dead(here: PostgresStore) -> None:
    """Its leases run on as they were."""
    async with PostgresStore(direct(), schema=SCHEMA) as other:
        await listening(other)
        await other.claim_runs("w", HOUR)
    assert not await here.owner_gone("w")
    assert await ask(f"SELECT FROM {SCHEMA}.owners WHERE owner = 'w'") == []


async def test_behind_a_pooler_the_lease_decides(here: PostgresStore) -> None:
    """There is no session that could hold a lock."""
    async with PostgresStore(pooled(), schema=SCHEMA) as other:
        await other.claim_runs("w", HOUR)
    assert await ask(f"SELECT FROM {SCHEMA}.owners") == []
    assert not await here.owner_gone("w")
