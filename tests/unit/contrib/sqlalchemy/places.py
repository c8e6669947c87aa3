"""Engines of an application, and stores on them that begin empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, MetaData, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outlast.contrib.sqlalchemy import Projection, make_tables, store_of
from outlast.contrib.sqlalchemy.postgres import SqlAlchemyPostgresStore
from outlast.ports import Store
from tests.stores.postgres.places import SCHEMA, direct, wipe
from tests.unit.contrib.sqlalchemy.shop import run_on

TABLES = MetaData()
NAMES = Projection(f"executions_{SCHEMA}", f"entries_{SCHEMA}")
make_tables(TABLES, executions=NAMES.executions, entries=NAMES.entries)


def engine_of(kind: str, folder: Path | None = None, **options: Any) -> Engine | AsyncEngine:
    """An engine: the driver's name, and `threads` if it is not for a loop."""
    driver, _, threads = kind.partition(" ")
    if driver.startswith("sqlite"):
        assert folder is not None
        url = make_url(f"{driver}:///{folder / 'app.db'}")
    else:
        url = make_url(direct()).set(drivername=driver)
    make: Any = create_engine if threads else create_async_engine
    engine: Engine | AsyncEngine = make(url, **options)
    return engine


async def dispose(engine: Engine | AsyncEngine) -> None:
    """Close what an engine has in its pool."""
    if isinstance(engine, AsyncEngine):
        await engine.dispose()
    else:
        engine.dispose()


@asynccontextmanager
async def fresh(kind: str, folder: Path | None = None, **options: Any) -> AsyncIterator[Store]:
    """An empty store on an engine of its own."""
    engine = engine_of(kind, folder)
    try:
        if options.get("projection"):
            await run_on(engine, TABLES.create_all)
        if not kind.startswith("sqlite"):
            # One schema with the triggers of a projection, one without.
            schema = f"{SCHEMA}_p" if options.get("projection") else SCHEMA
            options = {"schema": schema, "notify": False, **options}
        async with store_of(engine, **options) as store:
            if isinstance(store, SqlAlchemyPostgresStore):
                await wipe(store.database)
            yield store
    finally:
        await dispose(engine)


async def again(store: Any) -> Store:
    """Close a store and give another on the same data, as a new process would open it."""
    await store.close()
    engine = store.binding.loops or store.binding.engine
    if isinstance(store, SqlAlchemyPostgresStore):
        schema = store.database.queries.schema
        other = store_of(engine, schema=schema, notify=False, clock=store._session.clock)
        assert isinstance(other, SqlAlchemyPostgresStore)
        other._session.shift = store._session.shift
        return other
    return store_of(engine, clock=store.clock)
