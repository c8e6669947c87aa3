"""Exactly once with business data: a step's rows and its completion are one commit."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.contrib.sqlalchemy import store_of
from outlast.errors import InvalidValue, RunFailed
from outlast.model.event import EventType
from tests.postgres.places import SCHEMA, ask, direct
from tests.sqlalchemy import shop
from tests.sqlalchemy.places import dispose, engine_of

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
        assert await (await app.start(buys, "a", 7, id="a")).result(timeout=60) == 7
        assert await (await app.start(buys, "b", 13, id="b")).result(timeout=60) == 13
        types = [event.type for event in await app.history("b")]
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
            await (await app.start(buys, "a", 10**30, id="a")).result(timeout=60)
    assert await shop.booked(engine) == []


@pytest.mark.proves("I9", "I8", "I12")
@pytest.mark.parametrize("kind", [SERVERS[0], SERVERS[2], "sqlite+aiosqlite"])
async def test_a_process_that_is_killed_between_any_two_statements_pays_once(
    engine: Any, kind: str, tmp_path: Path
) -> None:
    """Killed before each statement of the transaction, before and after its COMMIT: the books have all
    of it or nothing, and after the next process has gone on, all of it once."""
    program = [sys.executable, "-m", "tests.sqlalchemy.killing", kind, str(tmp_path), OWN]
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
        await app.start(waits, id="waits", here=False)
        for succeeds in (False, True):
            try:
                async with session_on(engine) as session:
                    shop.book(session, "mine", 5)
                    enlisted = app.on(session)
                    await enlisted.start(buys, "o", 3, id="o")
                    await enlisted.start(buys, "q", 4, id="q", queue="later")
                    await enlisted.signal("waits", "go")
                    if not succeeds:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                assert not await store.exists("o")
                assert not await store.exists("q")
                assert await store.inbox("waits") == []
                assert await shop.booked(engine) == []
        assert [item.name for item in await store.inbox("waits")] == ["go"]
        assert await app.handle("o").result(timeout=60) == 3
        assert (await app.get("q")).wait_kind is not None
    assert await shop.booked(engine) == [("mine", -5), ("mine", 5), ("o", -3), ("o", 3)]


@outlast.workflow
async def waits() -> None:
    """For somebody to send something."""
    await outlast.wait_for("go")


def session_on(engine: Any) -> Any:
    from outlast.contrib.sqlalchemy.binding import binding_of
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
                await app.on(session).start(buys, "o", 1, on_conflict="replace")
        loud = engine_of(kind, tmp_path, isolation_level="AUTOCOMMIT")
        async with session_on(loud) as session:
            with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
                await app.on(session).start(buys, "o", 1)
        await dispose(loud)
        other = engine_of("sqlite+aiosqlite", tmp_path / "elsewhere")
        (tmp_path / "elsewhere").mkdir()
        async with session_on(other) as session:
            with pytest.raises(InvalidValue, match="the database of the store"):
                await app.on(session).start(buys, "o", 1)
        await dispose(other)
        assert [run async for run in app.find()] == []
