"""Counts of what a store is asked for, at the store's own door and at the database's.

Time stands still for these stores, so that nothing is counted that is done once in a while.
"""

from __future__ import annotations

import gc
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import asyncpg
import pytest
from redis.asyncio.connection import AbstractConnection

from outlast.model.ids import new_id
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.postgres import PostgresStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.wrapped_store import WrappedStore
from tests.stores.postgres.places import ask, direct
from tests.stores.redis.servers import single

T = TypeVar("T")


class CountedStore(WrappedStore):
    """Counts the calls of each method of the store inside."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        self.calls[name] += 1
        return await call()


@contextmanager
def function_calls() -> Iterator[Counter[str]]:
    """Counts the functions, of Python and of C, that this thread calls meanwhile."""
    counts: Counter[str] = Counter()

    def note(_: FrameType, event: str, __: object) -> None:
        if event in ("call", "c_call"):
            counts["functions"] += 1

    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(None)


@contextmanager
def allocations() -> Iterator[Counter[str]]:
    """Counts the blocks of memory that are allocated meanwhile, whether they are freed again or not.

    Python tells only how many are in use. They are counted when a function is called and when it
    returns, and every growth in between is added up; what is allocated and freed between two of these
    moments is not seen. The garbage collector rests, so that it frees nothing when it likes to.
    """
    counts: Counter[str] = Counter()
    in_use, total, last = sys.getallocatedblocks, 0, 0

    def note(_: FrameType, __: str, ___: object) -> None:
        nonlocal total, last
        now = in_use()
        if now > last:
            total += now - last
        last = now

    gc.collect()
    gc.disable()
    last = in_use()
    sys.setprofile(note)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        gc.enable()
        counts["allocations"] = total


@asynccontextmanager
async def counted_memory(
    _: Path, __: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Store, Counter[str]]]:
    """A store in memory: there is nothing behind it to be asked."""
    yield MemoryStore(clock=ManualClock()), Counter()


@asynccontextmanager
async def counted_sqlite(
    folder: Path, _: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Store, Counter[str]]]:
    """SQLite, and the transactions and statements it is given, each row of many counted."""
    counts: Counter[str] = Counter()

    class Counted(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            counts["transactions" if sql.startswith("BEGIN") else "statements"] += 1
            return super().execute(sql, *parameters)

        def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
            counts["statements"] += len(rows)
            return super().executemany(sql, rows)

    def connect(path: str) -> Counted:
        return sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, factory=Counted
        )

    yield SqliteStore(folder / "counted.db", clock=ManualClock(), connect=connect), counts


@asynccontextmanager
async def counted_postgres(
    _: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Store, Counter[str]]]:
    """PostgreSQL, and the queries it is sent, each a round trip."""
    counts: Counter[str] = Counter()

    def note(_: object) -> None:
        counts["round trips"] += 1

    async def listen(connection: Any) -> None:
        connection.add_query_logger(note)

    patch.setattr(asyncpg, "create_pool", partial(asyncpg.create_pool, init=listen))
    schema = f"own_{new_id().replace('-', '')}"
    yield PostgresStore(direct(), schema=schema, clock=ManualClock()), counts
    await ask(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@asynccontextmanager
async def counted_redis(
    _: Path, patch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Store, Counter[str]]]:
    """Redis, and the times that something is sent to it, be it one command or a pipeline."""
    counts: Counter[str] = Counter()
    send = AbstractConnection.send_packed_command

    async def counted(self: Any, *args: Any, **kwargs: Any) -> None:
        counts["round trips"] += 1
        await send(self, *args, **kwargs)

    patch.setattr(AbstractConnection, "send_packed_command", counted)
    yield single(clock=ManualClock()), counts


Place = Callable[
    [Path, pytest.MonkeyPatch], AbstractAsyncContextManager[tuple[Store, Counter[str]]]
]
PLACES: dict[str, Place] = {
    "memory": counted_memory,
    "sqlite": counted_sqlite,
    "postgres": counted_postgres,
    "redis": counted_redis,
}
