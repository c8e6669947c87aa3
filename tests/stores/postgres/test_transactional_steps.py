"""Transactional steps: the user's rows and the step's completion are one commit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

import asyncpg
import pytest

import outlast
from outlast.engine.steps import transactions
from outlast.errors import RunFailed, WorkflowMisuse
from outlast.model import Claim, EventType
from outlast.model.commit import Commit, Committed
from outlast.model.run import Change
from outlast.model.times import EPOCH
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres import commit as postgres_commit
from outlast.stores.postgres.transaction import TransactionStore
from tests.stores.postgres.places import url_of
from tests.stores.sqlite_processes.crew import Member

pytestmark = pytest.mark.server
SCHEMA = f"transactional_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
TABLE = f"ledger_{SCHEMA}"
HOLDERS = """
    SELECT DISTINCT a.pid, a.state, a.query, pg_terminate_backend(a.pid) AS ended
    FROM pg_locks AS l
    JOIN pg_class AS c ON c.oid = l.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE (n.nspname = ANY ($1) OR c.relname = ANY ($1)) AND l.pid <> pg_backend_pid()
"""
fates: list[str] = []


@outlast.step(transactional=True, retry=outlast.Retry(attempts=2, delay=0, jitter=0))
async def pay(amount: int) -> int:
    fate = fates.pop(0) if fates else "pays"
    await outlast.connection().execute(f"INSERT INTO {TABLE} (amount) VALUES ($1)", amount)
    if fate == "fails":
        raise ConnectionError("the bank is closed")
    if fate == "interrupts":
        raise KeyboardInterrupt("poison")
    if fate == "is superseded":
        await steal()
    if fate == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return amount


@outlast.step(transactional=True, at_most_once=True)
async def pay_once(amount: int) -> int:
    await outlast.connection().execute(f"INSERT INTO {TABLE} (amount) VALUES ($1)", amount)
    return amount


@outlast.workflow
async def buys_once(amount: int) -> int:
    return await pay_once(amount)


@outlast.step
async def after() -> None:
    if "dies after" in fates:
        os.kill(os.getpid(), signal.SIGKILL)


@outlast.workflow
async def buys(amount: int) -> int:
    paid = await pay(amount)
    await after()
    return paid


@outlast.step(transactional=True)
def plain() -> None:
    """A step for a connection that is used in threads."""


@outlast.workflow
async def plainly() -> None:
    await plain()


@pytest.fixture
async def database() -> AsyncIterator[Any]:
    fates.clear()
    connection = await asyncpg.connect(url_of())
    await connection.execute(
        f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP TABLE IF EXISTS {TABLE}"
    )
    await connection.execute(f"CREATE TABLE {TABLE} (amount int)")
    yield connection
    # A process that was killed in the middle of a statement lives on in the server for a while.
    for line in await connection.fetch(HOLDERS, [SCHEMA, TABLE]):
        print("still at work on these tables:", dict(line))
    await connection.execute(
        f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE; DROP TABLE IF EXISTS {TABLE}"
    )
    await connection.close()


@asynccontextmanager
async def app(**options: Any) -> AsyncIterator[outlast.App]:
    """An app on a store with a schema of its own."""
    async with (
        PostgresStore(url_of(), schema=SCHEMA) as store,
        outlast.App(store, workflows=[buys, buys_once, sums], **options) as opened,
    ):
        yield opened


async def paid(database: Any) -> list[int]:
    return [row["amount"] for row in await database.fetch(f"SELECT amount FROM {TABLE}")]


@pytest.mark.proves("I9")
async def test_rows_and_completion_are_there_together(database: Any) -> None:
    """And history has it as any other step."""
    async with app() as opened:
        run = await opened.start(buys(7), id="b")
        assert await run.result(timeout=30) == 7
        types = [event.type for event in await opened.get("b").history()]
        assert types.count(EventType.STEP_COMPLETED) == 2
    assert await paid(database) == [7]


async def test_a_step_that_fails_leaves_no_rows(database: Any) -> None:
    """Each attempt is a transaction of its own."""
    fates[:] = ["fails", "pays"]
    async with app() as opened:
        assert await (await opened.start(buys(7))).result(timeout=30) == 7
    assert await paid(database) == [7]
    fates[:] = ["fails", "fails"]
    async with app() as opened:
        with pytest.raises(RunFailed, match="the bank is closed"):
            await (await opened.start(buys(8))).result(timeout=30)
    assert await paid(database) == [7]


@pytest.mark.proves("I24")
async def test_a_step_that_raises_keyboard_interrupt_is_rolled_back(database: Any) -> None:
    """It has failed, like one that raises anything else, and is tried again as its policy says."""
    fates[:] = ["interrupts", "pays"]
    async with app() as opened:
        assert await (await opened.start(buys(7))).result(timeout=30) == 7
    assert await paid(database) == [7]


@pytest.mark.proves("I7", "I24")
async def test_a_constraint_that_waits_for_the_commit_fails_the_step(database: Any) -> None:
    """What only the COMMIT would refuse is seen before it: the step has failed, and nobody is in doubt."""
    await database.execute(
        f"ALTER TABLE {TABLE} ADD CONSTRAINT once UNIQUE (amount) DEFERRABLE INITIALLY DEFERRED"
    )
    async with app() as opened:
        assert await (await opened.start(buys(7))).result(timeout=30) == 7
        with pytest.raises(RunFailed, match="once"):
            await (await opened.start(buys(7))).result(timeout=30)
    assert await paid(database) == [7]


def live(pipe: Pipe, fate: list[str], once: bool = False) -> int:
    """A process that pays, and may be killed."""
    fates[:] = fate

    async def work() -> int:
        async with app(lease=1) as opened:
            if "dies at the commit" in fate:
                opened.store.commit = partial(consumes_never, opened.store.commit)  # type: ignore[method-assign]
            await opened.start(buys_once(7) if once else buys(7), id="killed")
            return int(await opened.get("killed").result(timeout=60))

    return asyncio.run(work())


async def consumes_never(commit: Any, commits: Any, **options: Any) -> Any:
    """Die where the outcome, which the transaction has left in the inbox, becomes history."""
    if any(event.type == EventType.STEP_COMPLETED for one in commits for event in one.events):
        os.kill(os.getpid(), signal.SIGKILL)
    return await commit(commits, **options)


@pytest.mark.proves("I9", "I5")
@pytest.mark.parametrize("fate", [["dies"], ["pays", "dies at the commit"], ["pays", "dies after"]])
async def test_a_process_that_is_killed_pays_once(database: Any, fate: list[str]) -> None:
    """Before the end of the transaction it has not paid, after it it has; never twice."""
    member = Member(live, (fate,))
    with pytest.raises(EOFError):
        await asyncio.to_thread(member.pipe.recv)
    member.kill()
    assert await paid(database) == ([] if fate == ["dies"] else [7])
    member = Member(live, ([],))
    assert await asyncio.to_thread(member.pipe.recv) == 7
    member.process.join()
    assert await paid(database) == [7]


@pytest.mark.proves("I9", "I10")
async def test_a_committed_step_that_must_not_be_repeated_is_completed(database: Any) -> None:
    """Its process is killed after the COMMIT and before the outcome is history: the next owner finds
    that in the inbox before it judges what the death has cut off."""
    member = Member(live, (["dies at the commit"], True))
    with pytest.raises(EOFError):
        await asyncio.to_thread(member.pipe.recv)
    member.kill()
    assert await paid(database) == [7]
    member = Member(live, ([], True))
    assert await asyncio.to_thread(member.pipe.recv) == 7
    member.process.join()
    assert await paid(database) == [7]


@pytest.mark.proves("I4", "I9")
async def test_a_process_that_was_superseded_rolls_back(database: Any) -> None:
    """Somebody claims the run while the step is at work: what it wrote is gone, and is written once
    by whoever has the run now."""
    fates[:] = ["is superseded"]
    async with app(lease=1) as opened:
        run = await opened.start(buys(7), id="stolen")
        assert await run.result(timeout=60) == 7
        history = await opened.get("stolen").history()
    assert [e.type for e in history if e.step_name == "pay"].count(EventType.STEP_STARTED) == 2
    assert await paid(database) == [7]


async def steal() -> None:
    """Take the claim on the run away, write to it, and give it back."""
    async with PostgresStore(url_of(), schema=SCHEMA) as store:
        run = await store.get("stolen")
        assert run.owner is not None
        held = Claim(owner=run.owner, token=run.token, claimed_at=EPOCH, run_id=run.id, uid=run.uid)
        assert await store.release([held]) == [True]
        [stolen] = await store.claim_runs("thief", 30, run_ids=["stolen"])
        change = Change(attributes={"by": "thief"})
        commit = Commit(run_id="stolen", token=stolen.claim.token, change=change, release=True)
        assert isinstance((await store.commit([commit]))[0], Committed)


@outlast.step(transactional=True)
async def adds() -> None:
    await outlast.connection().execute(f"UPDATE {TABLE} SET amount = amount + 1")
    gates["added"].set()
    await gates["locked"].wait()


@outlast.workflow
async def sums() -> None:
    await adds()


gates: dict[str, asyncio.Event] = {}


@asynccontextmanager
async def locked(opened: outlast.App, connection: Any) -> AsyncIterator[None]:
    """A step has added one, and a transaction of the user's has sent its run a signal."""
    await connection.execute(f"INSERT INTO {TABLE} VALUES (0)")
    gates.update(added=asyncio.Event(), locked=asyncio.Event())
    await opened.start(sums(), id="s")
    await gates["added"].wait()
    async with connection.transaction():
        await opened.on(connection).get("s").signal("note")
        gates["locked"].set()
        yield


@pytest.mark.proves("I4", "I9")
async def test_a_step_waits_for_a_run_that_is_locked(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than one statement waits for a lock: the step is done once, in its first attempt."""
    monkeypatch.setattr(postgres_commit, "MAX_LOCK_WAIT_S", 0.05)
    tries: asyncio.Queue[None] = asyncio.Queue()

    async def counted(store: TransactionStore, *args: Any) -> Any:
        tries.put_nowait(None)
        return await PostgresStore._commit_waiting(store, *args)

    monkeypatch.setattr(TransactionStore, "_commit_waiting", counted)
    async with app() as opened:
        async with locked(opened, database), asyncio.timeout(60):
            for _ in range(3):
                await tries.get()
        await opened.get("s").result(timeout=30)
        types = [event.type for event in await opened.get("s").history()]
    assert types.count(EventType.STEP_STARTED) == 1
    assert await paid(database) == [1]


@pytest.mark.proves("I9", "I24")
async def test_a_step_gives_way_to_a_transaction_that_waits_for_it(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has what the other needs, and the database cannot see it: the step is rolled back and made
    again, in the same attempt."""
    monkeypatch.setattr(transactions, "LOCK_PATIENCE_S", 0.5)
    async with app() as opened:
        async with locked(opened, database), asyncio.timeout(20):
            await database.execute(f"UPDATE {TABLE} SET amount = amount + 10")
        await opened.get("s").result(timeout=30)
        types = [event.type for event in await opened.get("s").history()]
    assert types.count(EventType.STEP_STARTED) == 1
    assert await paid(database) == [11]


async def test_bad_use(database: Any) -> None:
    """It is a step where the run is, of the kind that its connection is for, on a store that has
    transactions."""
    with pytest.raises(WorkflowMisuse, match="connection"):
        outlast.connection()
    with pytest.raises(WorkflowMisuse, match="transactional"):

        @outlast.step(transactional=True, queue="elsewhere")
        async def elsewhere() -> None: ...

    async with (
        PostgresStore(url_of(), schema=SCHEMA) as store,
        outlast.App(store, workflows=[plainly]) as opened,
    ):
        with pytest.raises(RunFailed, match="has to be an `async def`"):
            await (await opened.start(plainly())).result(timeout=30)

    async with outlast.App("memory:", workflows=[buys]) as opened:
        with pytest.raises(RunFailed, match="has no transactions"):
            await (await opened.start(buys(7))).result(timeout=30)
