"""Chooses the store: on PostgreSQL or SQLite, for the calling thread or for a worker.

The SQLite stores are here too: a worker opens its own connections to Django's file, and the calling thread
uses its Django connection. `manage_wal` sets up the WAL of each Django connection to that file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from django.db import connections

from outlast.contrib.django.conf import Settings, read_settings
from outlast.contrib.django.threads import Threads
from outlast.contrib.django.wakeups import BlockingClock, BlockingNotifier, WakingStore, listen
from outlast.errors import InvalidValue
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import PREFIX, prefixed
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.transaction import TransactionStore
from outlast.stores.sqlite.wal import WalCheckpointer


def thread_store(settings: Settings) -> Store:
    """The store on the connection of the calling thread, in its transaction."""
    alias = settings.database
    return _thread_store(connections[alias].vendor, alias, settings.schema)


def worker_store(settings: Settings, *, clock: Clock | None = None) -> Store:
    """The store of a worker, which has an event loop and its own transactions."""
    alias = settings.database
    match connections[alias].vendor:
        case "postgresql":
            from outlast.contrib.django.postgres import DjangoPostgresStore

            return DjangoPostgresStore(alias, schema=settings.schema, clock=clock)
        case "sqlite":
            from outlast.contrib.django.store import DjangoSqliteStore

            return DjangoSqliteStore(alias, clock=clock)
        case vendor:
            raise _neither(alias, vendor)


def store_at(url: str, *, clock: Clock | None = None) -> Store:
    """The store of a URL: ``django:`` or ``django:alias``, in a process with Django settings
    (DJANGO_SETTINGS_MODULE)."""
    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()
    settings = read_settings()
    alias = url.partition(":")[2] or settings.database
    if alias not in connections.settings:
        raise InvalidValue(f"DATABASES has no {alias!r}: use django:{settings.database}")
    return worker_store(msgspec.structs.replace(settings, database=alias), clock=clock)


@lru_cache
def _thread_store(vendor: str, alias: str, schema: str) -> Store:
    match vendor:
        case "postgresql":
            from outlast.contrib.django.postgres import PostgresThreadStore

            return PostgresThreadStore(alias, schema)
        case "sqlite":
            from outlast.contrib.django.store import SqliteThreadStore

            return SqliteThreadStore(alias)
        case _:
            raise _neither(alias, vendor)


def _neither(alias: str, vendor: str) -> InvalidValue:
    return InvalidValue(
        f"database {alias!r} is {vendor}: outlast works on PostgreSQL and on SQLite. Name such a database "
        "in OUTLAST['DATABASE']"
    )


T = TypeVar("T")

TAKE_LOCK = prefixed(query("take_lock"), PREFIX)


class DjangoSqliteStore(SqliteStore):
    """The store of a worker. `alias` names the database."""

    plain_transactions = True

    def __init__(self, alias: str = "default", *, clock: Clock | None = None) -> None:
        self.alias = alias
        own = connections[alias]
        if own.is_in_memory_db():
            raise InvalidValue(
                f"database {alias!r} is in memory, where a worker cannot read it: name a file, or in a "
                "test use outlast.contrib.django.testing.run_all"
            )
        super().__init__(own.settings_dict["NAME"], clock=clock, prefix=PREFIX)
        self._threads = Threads(alias, 1)
        listen(self.notifier)

    async def close(self) -> None:
        await super().close()
        await self._threads.close()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        """`transaction.atomic` in a separate thread, in which a plain step runs too. It takes the write lock at
        its start, so it never has to be retried because of a concurrent write."""
        await self.open()
        async with self._threads.transaction() as held:
            await held.run(lambda: connections[self.alias].connection.execute(TAKE_LOCK))

            async def borrow(work: Work[T], /) -> T:
                return await held.run(lambda: work(connections[self.alias].connection))

            yield held, TransactionStore(self, borrow)


class SqliteThreadStore(WakingStore, TransactionStore):
    """The store on the connection of the calling thread, in its transaction."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(lender_of(alias, BlockingClock()), self._on_connection)
        self.notifier = BlockingNotifier()

    def sibling(self) -> Any:
        return None

    async def _on_connection(self, work: Work[T], /) -> T:
        return on_connection(self.alias, work)


def lender_of(alias: str, clock: Clock) -> SqliteStore:
    """The store from which a borrowed one takes names and clock. It is never opened."""
    return SqliteStore(f"{alias}.django", prefix=PREFIX, clock=clock)


def on_connection(alias: str, work: Work[T]) -> T:
    """Call `work` with the connection of the calling thread, in its transaction."""
    own = connections[alias]
    own.ensure_connection()
    own.validate_no_broken_transaction()
    connection = own.connection
    if not own.get_autocommit() and not connection.in_transaction:
        # The user commits: the savepoint of a write must not be the outermost transaction.
        connection.execute("BEGIN")
    return work(connection)


def manage_wal(connection: Any) -> None:
    """Set up the WAL of a new connection to a SQLite file."""
    checkpointer = _checkpointer(_file_of(connection))
    checkpointer.take_over(connection.connection)
    wrappers = connection.execute_wrappers  # they outlive the driver's connection
    wrappers[:] = [one for one in wrappers if not isinstance(one, _CheckpointWrapper)]
    wrappers.append(_CheckpointWrapper(checkpointer))


class _CheckpointWrapper:
    """Checkpoints the WAL, if that is due, before a statement that starts a transaction."""

    def __init__(self, checkpointer: WalCheckpointer) -> None:
        self._checkpointer = checkpointer

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if not context["connection"].connection.in_transaction and self._checkpointer.is_due():
            self._checkpointer.checkpoint()
        return execute(sql, params, many, context)


def _file_of(connection: Any) -> str:
    rows = connection.connection.execute("PRAGMA database_list").fetchall()
    return str(next(file for _, name, file in rows if name == "main"))


@lru_cache
def _checkpointer(path: str) -> WalCheckpointer:
    return WalCheckpointer(path)
