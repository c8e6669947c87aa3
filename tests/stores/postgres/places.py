"""Where the tests of PostgreSQL find their server, and how they begin with an empty store.

Making a schema takes a tenth of a second, emptying one a few milliseconds; so each test process has
one of its own and empties it before each test.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from outlast.ports import Store
from outlast.stores.postgres import PostgresQueue, PostgresStore
from outlast.stores.postgres.database import Database
from outlast.stores.postgres.schema import functions, migrations

TABLES = """
    runs run_details attributes events inbox receipts timers entries activities snapshots facts
    keys tasks dead_tasks owners workers fair_key_wakeups fair_keys policies policy_changes fair_weights task_starts
"""
_DIGEST = hashlib.sha256(
    "".join([functions().script, *(step.script for step in migrations())]).encode()
).hexdigest()
# A server that is kept running has schemas of yesterday's files.
SCHEMA = f"test_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{_DIGEST[:8]}"


def url_of(name: str = "POSTGRES") -> str:
    """Where the server is. Without one a test fails: nothing is left out in silence."""
    found = os.environ.get(f"OUTLAST_TEST_{name}")
    if not found:
        pytest.fail(
            f"OUTLAST_TEST_{name} is not set: run the tests by `./dev test`, or this one by "
            "`./dev python -m tools.servers postgres -- ./dev python -m pytest …`",
            pytrace=False,
        )
    return found


def direct() -> str:
    """The server itself."""
    return url_of("POSTGRES")


def pooled() -> str:
    """The same through PgBouncer, which hands out connections per transaction."""
    return url_of("PGBOUNCER")


async def wipe(database: Database) -> None:
    """Empty the tables."""
    script = "".join(f"DELETE FROM @{table};" for table in TABLES.split())
    source = database._main
    assert source is not None
    async with source.acquire(None) as connection:
        await connection.execute(database.queries.render(script))


class FreshStore(PostgresStore):
    """A store that is empty when it is first opened."""

    def __init__(self, place: Any = None, **options: Any) -> None:
        super().__init__(
            direct() if place is None else place, **{"schema": SCHEMA, "notify": False, **options}
        )
        self.is_fresh = False

    async def open(self) -> None:
        await super().open()
        if not self.is_fresh:
            await wipe(self._session.database)
            self.is_fresh = True


class FreshQueue(PostgresQueue):
    """A queue that is empty when it is first opened."""

    def __init__(self, place: Any = None, **options: Any) -> None:
        super().__init__(
            direct() if place is None else place, **{"schema": SCHEMA, "notify": False, **options}
        )
        self.is_fresh = False

    async def open(self) -> None:
        await super().open()
        if not self.is_fresh:
            await wipe(self._session.database)
            self.is_fresh = True


async def again(store: Store) -> PostgresStore:
    """Close a store and give another on the same data, as a new process would open it."""
    assert isinstance(store, PostgresStore)
    database = store._session.database
    await store.close()
    other = PostgresStore(
        database._place, schema=database.queries.schema, clock=store._session.clock
    )
    other._session.shift = store._session.shift
    return other


async def ask(sql: str, *args: object, url: str | None = None) -> list[Any]:
    """What somebody else sees, on a connection of their own."""
    connection = await asyncpg.connect(url or direct())
    try:
        rows: list[Any] = await connection.fetch(sql, *args)
        return rows
    finally:
        await connection.close()


READ = """
    SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
    FROM pg_stat_xact_user_tables WHERE schemaname = $1
"""


async def rows_read(store: PostgresStore, call: Callable[[], Awaitable[object]]) -> int:
    """How many rows the server has looked at for what the store reads in `call`, by its own count,
    those that a filter threw away included."""
    counted, queries = 0, store.database.queries

    async def read(name: str, *args: object, **_: object) -> list[Any]:
        nonlocal counted
        async with store.database.acquire() as connection, connection.transaction():
            before = await connection.fetchval(READ, queries.schema)  # not yet reported
            rows = list(await connection.fetch(queries[name], *args))
            counted += await connection.fetchval(READ, queries.schema) - before
            return rows

    store._session.read = read  # type: ignore[method-assign]
    try:
        await call()
    finally:
        del store._session.read
    return counted
