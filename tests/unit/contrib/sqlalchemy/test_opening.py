"""What cannot work is told at the start, with what to do instead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import StaticPool

import outlast
from outlast.contrib.sqlalchemy import store_of
from outlast.errors import InvalidValue, ReadOnlyStore, Unavailable
from outlast.model import Event, Run
from tests.stores.postgres.places import SCHEMA, direct
from tests.unit.contrib.sqlalchemy.places import dispose, engine_of


async def test_other_databases_and_drivers() -> None:
    """Only what our SQL is written for."""
    nothing: Any = lambda: None  # noqa: E731 - a pool that is never asked
    pretends: Any = StaticPool(nothing)
    mysql = create_engine("mysql+pymysql://localhost/shop", module=_Driver, pool=pretends)
    with pytest.raises(InvalidValue, match="is for mysql"):
        store_of(mysql)
    old = create_engine("postgresql+pg8000://localhost/shop", module=_Driver, pool=pretends)
    with pytest.raises(InvalidValue, match=r"pg8000 is not supported.*postgresql\+asyncpg"):
        store_of(old)
    for place in ("sqlite:///x.db", None, Session(), sessionmaker()):
        with pytest.raises(InvalidValue, match="a store cannot use a"):
            store_of(place)  # type: ignore[arg-type]


class _Driver:
    """As much of a driver as an engine looks at before it connects."""

    paramstyle = "pyformat"
    __version__ = "1.31.0"
    Error = Exception


async def test_a_file_is_needed(tmp_path: Path) -> None:
    """Memory is for one connection, and no prefix would be no place beside other tables."""
    with pytest.raises(InvalidValue, match="is not a file"):
        store_of(create_engine("sqlite://", poolclass=StaticPool))
    with pytest.raises(InvalidValue, match="use a prefix"):
        store_of(engine_of("sqlite threads", tmp_path), prefix="")


@pytest.mark.parametrize(
    "kind", ["sqlite threads", pytest.param("postgresql+psycopg", marks=pytest.mark.server)]
)
async def test_an_engine_that_commits_by_itself(kind: str, tmp_path: Path) -> None:
    """By an option of the engine, or as it was made: it is seen at once."""
    engine = engine_of(kind, tmp_path)
    with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
        store_of(engine.execution_options(isolation_level="AUTOCOMMIT"))
    await dispose(engine)
    engine = engine_of(kind, tmp_path, isolation_level="AUTOCOMMIT")
    with pytest.raises(InvalidValue, match="AUTOCOMMIT"):
        store_of(engine)
    await dispose(engine)


@pytest.mark.server
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("kind", ["postgresql+asyncpg", "postgresql+psycopg threads"])
async def test_an_engine_that_is_too_strict(kind: str, level: str) -> None:
    """Its transactional steps could never be committed: the claim is renewed on another connection. The same
    pool with another level will do, and what is started in a strict transaction is part of it."""
    engine: Any = engine_of(kind, isolation_level=level)
    with pytest.raises(InvalidValue, match="READ COMMITTED"):
        store_of(engine)
    milder = engine.execution_options(isolation_level="READ COMMITTED")
    async with store_of(milder, schema=SCHEMA, notify=False) as store:
        await store.delete("strict")
        if isinstance(engine, AsyncEngine):
            async with AsyncSession(engine) as session, session.begin():
                await store.on(session).save(Run(id="strict", workflow="w"))
        else:
            with Session(engine) as plain, plain.begin():
                await store.on(plain).save(Run(id="strict", workflow="w"))
        assert await store.exists("strict")
        async with store.transaction() as (_, borrowed):
            assert await borrowed.exists("strict")  # it has looked
            await store.save(Run(id="strict", workflow="w", current_step="another"))
            await borrowed.save(Run(id="strict", workflow="w", current_step="the step"))
        found = await store.get("strict")
        assert found is not None
        assert found.current_step == "the step"
        await store.delete("strict")
    await dispose(engine)


@pytest.mark.server
async def test_a_replica_is_told_at_the_start() -> None:
    """A read-only database cannot hold a store: that is what a standby answers, too."""
    url = make_url(direct()).set(drivername="postgresql+asyncpg")
    settings = {"server_settings": {"default_transaction_read_only": "on"}}
    engine = create_async_engine(url, connect_args=settings)
    with pytest.raises(ReadOnlyStore, match="primary"):
        await store_of(engine, schema="never_made").open()
    await engine.dispose()


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgresql+asyncpg", "postgresql+psycopg threads"])
async def test_a_server_that_is_not_there(kind: str) -> None:
    """It is away, whichever driver says so."""
    driver, _, threads = kind.partition(" ")
    make: Any = create_engine if threads else create_async_engine
    engine = make(make_url(direct()).set(drivername=driver, port=1))
    with pytest.raises(Unavailable, match="cannot be reached"):
        await store_of(engine).open()
    await dispose(engine)


@pytest.mark.server
async def test_a_pool_that_is_used_up() -> None:
    """The error says which setting to change."""
    engine = engine_of("postgresql+psycopg threads", pool_size=1, max_overflow=0, pool_timeout=0.05)
    async with store_of(engine, schema=SCHEMA) as store:
        with engine.connect(), pytest.raises(Unavailable, match="pool_size"):  # type: ignore[union-attr]
            await store.exists("r")
    await dispose(engine)


@pytest.mark.server
@pytest.mark.parametrize("kind", ["postgresql+asyncpg", "postgresql+psycopg threads"])
async def test_steps_leave_room_in_the_pool(kind: str) -> None:
    """However many there are: else no claim could be renewed, and their runs would be given up. Where there
    is no room at all, that is told."""
    engine = engine_of(kind, pool_size=2, max_overflow=0, pool_timeout=10)

    async def another(store: Any) -> None:
        async with store.transaction() as (_, borrowed):
            await borrowed.exists("r")

    async with store_of(engine, schema=SCHEMA, notify=False) as store:
        async with store.transaction() as (_, borrowed):
            await borrowed.exists("r")  # it has a connection now
            second = asyncio.create_task(another(store))
            for _ in range(5):
                await store.exists("r")
            assert not second.done()
        await second
    await dispose(engine)
    single = engine_of(kind, pool_size=1, max_overflow=0)
    async with store_of(single, schema=SCHEMA, notify=False) as store:
        with pytest.raises(InvalidValue, match="pool_size of 2"):
            await another(store)
    await dispose(single)


async def test_sessions_and_engines_that_are_closed(tmp_path: Path) -> None:
    """A closed connection is refused; an engine that was disposed of opens a new pool, and goes on."""
    engine = create_engine(f"sqlite:///{tmp_path / 'app.db'}")
    async with store_of(sessionmaker(engine)) as store, outlast.App(store) as app:
        connection = engine.connect()
        connection.close()
        with pytest.raises(InvalidValue, match="closed"):
            app.on(connection)
        with pytest.raises(InvalidValue, match="cannot be used"):
            await store.on(Session()).save(Run(id="r", workflow="w"))
        engine.dispose()
        await store.append("r", [Event(type="x", run_id="r")])
        with Session(engine) as session:
            assert await store.on(session).exists("r")
    engine.dispose()


async def test_a_factory_of_sessions_makes_those_of_steps(tmp_path: Path) -> None:
    """With the options that the application has given it."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'app.db'}")

    class Own(AsyncSession):
        pass

    async with (
        store_of(async_sessionmaker(engine, class_=Own)) as store,
        store.transaction() as (session, borrowed),
    ):
        assert isinstance(session, Own)
        await borrowed.save(Run(id="r", workflow="w"))
    async with store_of(engine) as store:
        assert await store.exists("r")
    await engine.dispose()
