"""Connections of transactional steps: a step has one for itself, and holds up nothing but other steps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.errors import InvalidValue, TimedOut
from outlast.model import Commit, EventType, Run
from outlast.stores.postgres import database
from outlast.stores.postgres.connection import StepConnection
from tests.stores.postgres.places import FreshStore, ask, direct, pooled

pytestmark = pytest.mark.server
ROLE = "pg_monitor"
"""A role that every server has, and that may not write our tables."""

LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $1"
STATE = [
    ("SET statement_timeout = '9876ms'", "SHOW statement_timeout"),
    ("SET search_path = pg_catalog", "SHOW search_path"),
    ("SET application_name = 'mine'", "SHOW application_name"),
    (f"SET ROLE {ROLE}", "SELECT current_user"),
    (f"SET SESSION AUTHORIZATION {ROLE}", "SELECT session_user"),
    ("SELECT pg_advisory_lock(42)", LOCKS.replace("$1", "pg_backend_pid()")),
    ("CREATE TEMP TABLE scratch (a int)", "SELECT to_regclass('pg_temp.scratch')"),
    ("PREPARE mine AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements"),
    ("LISTEN mine", "SELECT count(*) FROM pg_listening_channels()"),
]
CASES = pytest.mark.parametrize(("change", "probe"), STATE, ids=[change for change, _ in STATE])


@pytest.fixture
async def one() -> AsyncIterator[FreshStore]:
    """A store in which all steps use the same connection, one after the other."""
    async with FreshStore(step_pool_size=1, pool_size=1) as store:
        yield store


async def found(store: FreshStore, probe: str) -> tuple[int, object]:
    """The server's process, and what a step finds there."""
    async with store.transaction() as (connection, _):
        return connection.get_server_pid(), await connection.fetchval(probe)


@CASES
@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
async def test_session_state_ends_with_the_step(
    one: FreshStore, change: str, probe: str, fails: bool
) -> None:
    """Whatever a step sets in its session, the next one on the same connection finds it as it was."""
    before = await found(one, probe)
    try:
        async with one.transaction() as (connection, inside):
            await connection.execute(change)
            await inside.settle()
            if fails:
                raise LookupError
    except LookupError:
        pass
    assert await found(one, probe) == before


async def test_codecs_end_with_the_step(one: FreshStore) -> None:
    """Those live in the driver, where the server resets nothing: the connection is closed."""
    probe = """SELECT '{"a": 1}'::json"""
    async with one.transaction() as (connection, _):
        await connection.set_type_codec(
            "json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
        )
        assert await connection.fetchval(probe) == {"a": 1}
    _, value = await found(one, probe)
    assert value == '{"a": 1}'


async def test_a_connection_that_cannot_be_reset_is_closed(
    one: FreshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction was committed, and says so: the caller hears of no error."""
    with monkeypatch.context() as broken:
        broken.setattr(StepConnection, "get_reset_query", lambda _: "SELECT 1 / 0")
        async with one.transaction() as (connection, inside):
            pid = connection.get_server_pid()
            await inside.commit([Commit(run_id="r", create=Run(id="r"))])
    assert await one.exists("r")
    assert (await found(one, "SELECT 1"))[0] != pid


# -- the step's role, and ours --------------------------------------------------------------------


@outlast.step(transactional=True)
async def acts_as(statement: str) -> str:
    await outlast.connection().execute(statement)
    return str(await outlast.connection().fetchval("SELECT current_user"))


@outlast.workflow
async def acts(statement: str) -> str:
    return await acts_as(statement)


@pytest.mark.proves("I9")
@pytest.mark.parametrize("statement", [f"SET LOCAL ROLE {ROLE}", f"SET ROLE {ROLE}"])
async def test_the_outcome_is_recorded_by_our_own_user(one: FreshStore, statement: str) -> None:
    """A step that acts as a role without rights on our tables completes."""
    async with outlast.App(one, workflows=[acts]) as app:
        assert await (await app.start(acts(statement))).result(timeout=30) == ROLE


# -- waiting --------------------------------------------------------------------------------------


@pytest.mark.proves("S-14")
async def test_a_step_holds_up_no_other_run(one: FreshStore) -> None:
    """While every connection of steps is held, the store commits, reads and renews."""
    async with one.transaction(), asyncio.timeout(30):
        await one.commit([Commit(run_id="r", create=Run(id="r"))])
        (claimed,) = await one.claim_runs("w", 30, run_ids=["r"])
        assert await one.renew([claimed.claim], 30) != [None]


async def test_who_waits_for_too_long_is_told(
    one: FreshStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the option to change, and nothing was written."""
    async with one.transaction():
        monkeypatch.setattr(database, "STEP_CONNECTION_TIMEOUT_S", 0.05)
        with pytest.raises(TimedOut, match="step_pool_size"):
            async with one.transaction():
                pytest.fail("there is one connection")
    monkeypatch.undo()
    assert (await found(one, "SELECT 1"))[1] == 1


started: asyncio.Queue[str] = asyncio.Queue()
may_end = asyncio.Event()


@outlast.step(transactional=True, retry=outlast.Retry(attempts=1))
async def in_turn(name: str) -> None:
    started.put_nowait(name)
    await may_end.wait()


@outlast.workflow
async def takes_turns(name: str) -> None:
    await in_turn(name)


async def test_to_wait_for_another_step_costs_no_attempt(
    one: FreshStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often the wait is over in vain: the step has not begun, and its run stays where it is."""
    monkeypatch.setattr(database, "STEP_CONNECTION_TIMEOUT_S", 0.01)
    monkeypatch.setattr("outlast.engine.steps.transactions.WAIT_SECONDS", 0.01)
    may_end.clear()
    async with outlast.App(one, workflows=[takes_turns]) as app, asyncio.timeout(30):
        runs = [await app.start(takes_turns(name), id=name) for name in ("a", "b")]
        await started.get()
        while caplog.text.count("waits for a transaction") < 3:
            await one.now()
        may_end.set()
        for run in runs:
            await run.result()
            types = [event.type for event in await app.get(run.id).history()]
            assert types.count(EventType.STEP_STARTED) == 1
            assert types.count(EventType.STEP_COMPLETED) == 1


async def test_steps_hold_half_of_a_pool_of_yours() -> None:
    """The rest is for commits and renewals."""
    async with (
        asyncpg.create_pool(direct(), min_size=0, max_size=4) as pool,
        FreshStore(pool) as store,
        AsyncExitStack() as held,
        asyncio.timeout(30),
    ):
        for _ in range(2):
            await held.enter_async_context(store.transaction())
        third = asyncio.create_task(held.enter_async_context(store.transaction()))
        await store.now()
        assert not third.done()
        third.cancel()


async def test_a_pool_of_one_connection_is_refused() -> None:
    """A step would hold it while the claim of its run has to be renewed."""
    async with (
        asyncpg.create_pool(direct(), min_size=0, max_size=1) as pool,
        FreshStore(pool) as store,
    ):
        with pytest.raises(InvalidValue, match="max_size to 2"):
            async with store.transaction():
                pytest.fail("it was not refused")


# -- behind PgBouncer -----------------------------------------------------------------------------


async def in_session(url: str, pid: int, probe: str) -> Any:
    """What is found in the server's process `pid`, which the pooler lends to any client."""
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        async with asyncio.timeout(30):
            while True:
                async with connection.transaction():
                    here = await connection.fetchval("SELECT pg_backend_pid()")
                    if here == pid:
                        return await connection.fetchval(probe)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("change", "probe"), STATE[:2] + STATE[3:6], ids=[one for one, _ in STATE[:2] + STATE[3:6]]
)
async def test_behind_a_pooler_state_ends_with_the_transaction(change: str, probe: str) -> None:
    """The session is lent to other clients after the COMMIT: settings, the role and advisory locks are
    reset before it."""
    async with FreshStore(pooled()) as store:
        async with store.transaction() as (connection, inside):
            pid = await connection.fetchval("SELECT pg_backend_pid()")
            before = await connection.fetchval(probe)
            await connection.execute(change)
            assert await connection.fetchval(probe) != before
            await inside.settle()
        assert await in_session(pooled(), pid, probe) == before


async def test_behind_a_pooler_locks_end_with_a_step_that_fails() -> None:
    """A rollback alone would leave them in a session that is lent to other clients."""
    pid = -1
    async with FreshStore(pooled()) as store:
        try:
            async with store.transaction() as (connection, _):
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                await connection.execute("SELECT pg_advisory_lock(42)")
                raise LookupError
        except LookupError:
            pass
        assert (await ask(LOCKS, pid))[0][0] == 0
