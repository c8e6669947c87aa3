"""Engines of an application, and stores on them that begin empty."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from outlast.contrib.sqlalchemy import store_of
from outlast.contrib.sqlalchemy.postgres import SqlAlchemyPostgresStore
from outlast.ports import Store
from tests.postgres.places import SCHEMA, direct, wipe

KINDS = ("postgresql+asyncpg", "postgresql+psycopg", "postgresql+psycopg threads")
FILES = ("sqlite+aiosqlite", "sqlite threads")


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
        if not kind.startswith("sqlite"):
            options = {"schema": SCHEMA, "notify": False, **options}
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
        other = store_of(engine, schema=SCHEMA, notify=False, clock=store._session.clock)
        assert isinstance(other, SqlAlchemyPostgresStore)
        other._session.shift = store._session.shift
        return other
    return store_of(engine, clock=store.clock)
