"""Exactly once with business data: a step's rows and its completion are one commit."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

import outlast
import outlast.sync
from outlast.contrib.sqlalchemy import store_of
from outlast.errors import InvalidValue, NotFound, RunFailed
from outlast.model.event import EventType
from tests.stores.postgres.places import SCHEMA, ask, direct
from tests.unit.contrib.sqlalchemy import shop
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of

SERVERS = [
    pytest.param(kind, marks=pytest.mark.server)
    for kind in ("postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg threads")
]
KINDS = [*SERVERS, "sqlite+aiosqlite", "sqlite threads"]
OWN = f"{SCHEMA}_orm"


def store_at(engine: Any) -> Any:
    return store_of(engine, schema=OWN)


@pytest.fixture
async def engine(kind: str, tmp_path: Path) -> AsyncIterator[Any]:
    """An engine of the application, whose books are empty."""
    if kind.startswith("postgresql"):
        await ask(f"DROP SCHEMA IF EXISTS {OWN} CASCADE", url=direct())
    engine = engine_of(kind, tmp_path)
    await shop.make_tables(engine)
    yield engine
    await dispose(engine)


@pytest.mark.proves("I9")
@pytest.mark.parametrize("kind", KINDS)
async def test_rows_and_completion_are_there_together(engine: Any) -> None:
    """Also of a step whose first attempt has failed: that one left nothing."""
    buys = shop.workflow_for(engine)
    async with store_at(engine) as store, outlast.App(store, workflows=[buys]) as app:
        assert await (await app.start(buys("a", 7), id="a")).result(timeout=60) == 7
        assert await (await app.start(buys("b", 13), id="b")).result(timeout=60) == 13
        types = [event.type for event in await app.get("b").history()]
        assert types.count(EventType.STEP_FAILED) == 1
        assert types.count(EventType.STEP_COMPLETED) == 1
    assert await shop.booked(engine) == [("a", -7), ("a", 7), ("b", -13), ("b", 13)]


@pytest.mark.proves("I7")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_the_database_refuses_fails_the_step(engine: Any) -> None:
    """A row that cannot be written at the end is the step's own failure, not a doubt about the run."""
    buys = shop.workflow_for(engine)
    async with store_at(engine) as store, outlast.App(store, workflows=[buys]) as app:
        with pytest.raises(RunFailed):
            await (await app.start(buys("a", shop.HUGE), id="a")).result(timeout=60)
    assert await shop.booked(engine) == []


@pytest.mark.proves("I9", "I8", "I12")
@pytest.mark.parametrize("kind", [SERVERS[0], SERVERS[2], "sqlite+aiosqlite"])
async def test_a_process_that_is_killed_between_any_two_statements_pays_once(
    engine: Any, kind: str, tmp_path: Path
) -> None:
    """Killed before each statement of the transaction, before and after its COMMIT: the books have all
    of it or nothing, and after the next process has gone on, all of it once."""
    program = [
        sys.executable,
        "-m",
        "tests.unit.contrib.sqlalchemy.killing",
        kind,
        str(tmp_path),
        OWN,
    ]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    whole = [["o", -7], ["o", 7]]
    rounds = [json.loads(line) for line in out.splitlines()]
    assert [number for number, *_ in rounds] == list(range(1, len(rounds) + 1))
    assert [killed for _, killed, _, _ in rounds] == [True] * (len(rounds) - 1) + [False]
    firsts = [first for _, _, first, _ in rounds]
    # Nothing up to the COMMIT, and all of it from then on.
    assert firsts == sorted(firsts)
    assert {str(first) for first in firsts} == {"[]", str(whole)}
    assert firsts.count([]) >= 5
    assert [last for *_, last in rounds] == [whole] * len(rounds)


@pytest.mark.proves("I12", "I25", "I16")
@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_begun_in_a_transaction_vanishes_with_its_rollback(engine: Any) -> None:
    """A run, a signal and a queued run: with a rollback they never were, with a commit they are there,
    and so are the rows."""
    buys = shop.workflow_for(engine)
    async with store_at(engine) as store, outlast.App(store, workflows=[buys]) as app:
        await app.start(waits(), id="waits", here=False)
        for succeeds in (False, True):
            try:
                async with session_on(engine) as session:
                    shop.book(session, "mine", 5)
                    enlisted = app.on(session)
                    await enlisted.start(buys("o", 3), id="o")
                    await enlisted.start(buys("q", 4), id="q", queue="later")
                    await enlisted.get("waits").signal("go")
                    if not succeeds:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert not await store.exists("o")
                assert not await store.exists("q")
                assert await store.inbox("waits") == []
                assert await shop.booked(engine) == []
        assert [item.name for item in await store.inbox("waits")] == ["go"]
        assert await app.get("o").result(timeout=60) == 3
        assert (await app.get("q").status()).wait_kind is not None
    assert await shop.booked(engine) == [("mine", -5), ("mine", 5), ("o", -3), ("o", 3)]


@pytest.mark.proves("I12")
def test_programs_without_a_loop_have_transactions_too(tmp_path: Path) -> None:
    """`outlast.sync.App.on`: what a Session has begun vanishes with its rollback."""
    engine: Any = engine_of("sqlite threads", tmp_path)
    shop.Base.metadata.create_all(engine)
    store = store_of(engine)
    with outlast.sync.App(store, workflows=[shop.buys_plainly]) as app:
        for order in ("never", "o"):
            with Session(engine) as session:
                shop.book(session, order, 1)
                app.on(session).start(shop.buys_plainly(order, 3), id=order)
                if order == "o":
                    session.commit()
        assert app.get("o").result(timeout=60) == 3
        with pytest.raises(NotFound):
            app.get("never").status()
    asyncio.run(store.close())
    with Session(engine) as session:
        lines = session.execute(select(shop.Payment.order, shop.Payment.amount)).all()
    assert sorted(tuple(line) for line in lines) == [("o", -3), ("o", -1), ("o", 1), ("o", 3)]
    engine.dispose()


@outlast.workflow
async def waits() -> None:
    """For somebody to send something."""
    await outlast.wait_for_signal("go")


def session_on(engine: Any) -> Any:
    from outlast.contrib.sqlalchemy.store import binding_of
    from outlast.contrib.sqlalchemy.transactions import session_of

    return session_of(binding_of(engine))


@pytest.mark.proves("I11")
@pytest.mark.parametrize("kind", [SERVERS[0], "sqlite threads"])
async def test_bad_use_of_a_transaction(engine: Any, kind: str, tmp_path: Path) -> None:
    """Each is refused before anything is written, and says what to do."""
    buys = shop.workflow_for(engine)
    async with store_at(engine) as store, outlast.App(store, workflows=[buys]) as app:
        with pytest.raises(InvalidValue, match="pass a Session"):
            app.on("a string")
        with pytest.raises(InvalidValue, match="attach or fail"):
            async with session_on(engine) as session:
                await app.on(session).start(buys("o", 1), on_conflict="replace")
        loud: Any = engine_of(kind, tmp_path, isolation_level="AUTOCOMMIT")
        session = AsyncSession(loud) if isinstance(loud, AsyncEngine) else Session(loud)
        with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
            await app.on(session).start(buys("o", 1))
        await session.close() if isinstance(session, AsyncSession) else session.close()
        await dispose(loud)
        other = engine_of("sqlite+aiosqlite", tmp_path / "elsewhere")
        (tmp_path / "elsewhere").mkdir()
        async with session_on(other) as session:
            with pytest.raises(InvalidValue, match="the database of the store"):
                await app.on(session).start(buys("o", 1))
        await dispose(other)
        assert [run async for run in app.client.find()] == []


@pytest.mark.parametrize(
    "kind", ["sqlite threads", pytest.param("postgresql+psycopg threads", marks=pytest.mark.server)]
)
async def test_a_session_is_not_ended_under_a_step_that_runs(engine: Any) -> None:
    """Who is cancelled, or has timed out, leaves a plain step in its thread: its transaction is rolled back
    when it has returned, and what it writes until then with it."""
    arrived, go_on = threading.Event(), threading.Event()
    seen: list[Any] = []

    def body(session: Session) -> None:
        seen.append(session.connection())
        session.add(shop.Payment(order="x", amount=1))
        session.flush()
        arrived.set()
        assert go_on.wait(30)
        session.add(shop.Payment(order="x", amount=2))
        session.flush()
        seen.append(session.connection())

    async def attempt(store: Any) -> None:
        async with store.transaction() as (session, _):
            await asyncio.get_running_loop().run_in_executor(session.threads, body, session)

    async with store_at(engine) as store:
        task = asyncio.create_task(attempt(store))
        await asyncio.to_thread(arrived.wait, 30)
        task.cancel()
        await asyncio.sleep(0)  # it is told, and waits for the thread
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen[0] is seen[1], "it was one transaction to its end"
    assert engine.pool.checkedout() == 0
    assert await shop.booked(engine) == []


@pytest.mark.parametrize("kind", ["sqlite threads"])
async def test_a_plain_step_runs_in_the_thread_of_its_transaction(engine: Any) -> None:
    """So that whoever ends that waits for it."""

    @outlast.step(transactional=True)
    def where() -> str:
        return threading.current_thread().name

    @outlast.workflow
    async def work() -> str:
        return await where()

    async with store_at(engine) as store, outlast.App(store, workflows=[work]) as app:
        name = await (await app.start(work(), id="r")).result(timeout=60)
    assert name.startswith("outlast-transaction")
