"""Which store: on PostgreSQL or SQLite, for the calling thread or for a worker.

The SQLite store in Django's own file: a worker has the store's connections to it, the calling thread
its connection of Django's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
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
from outlast.stores.sqlite.transaction import BorrowedStore


def store_here(settings: Settings) -> Store:
    """The store on the connection of the calling thread, in its transaction."""
    alias = settings.database
    return _store_here(connections[alias].vendor, alias, settings.schema)


def worker_store(settings: Settings, *, clock: Clock | None = None) -> Store:
    """The store for a worker, which has an event loop and transactions of its own."""
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
    """The store that a URL names: ``django:`` or ``django:alias``, in a process that knows its
    settings (DJANGO_SETTINGS_MODULE)."""
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
def _store_here(vendor: str, alias: str, schema: str) -> Store:
    match vendor:
        case "postgresql":
            from outlast.contrib.django.postgres import PostgresHere

            return PostgresHere(alias, schema)
        case "sqlite":
            from outlast.contrib.django.store import SqliteHere

            return SqliteHere(alias)
        case _:
            raise _neither(alias, vendor)


def _neither(alias: str, vendor: str) -> InvalidValue:
    return InvalidValue(
        f"database {alias!r} is {vendor}: outlast works on PostgreSQL and on SQLite. Name such a one "
        "in OUTLAST['DATABASE']"
    )


T = TypeVar("T")

TAKE_LOCK = prefixed(query("take_lock"), PREFIX)


class DjangoSqliteStore(SqliteStore):
    """What a worker has: `alias` names the database."""

    plain_transactions = True

    def __init__(self, alias: str = "default", *, clock: Clock | None = None) -> None:
        self.alias = alias
        own = connections[alias]
        if own.is_in_memory_db():
            raise InvalidValue(
                f"database {alias!r} is in memory, where a worker cannot see it: name a file, or in a "
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
        """`transaction.atomic` in a thread of its own, where a plain step runs too. It has the lock
        to write from the beginning: others wait, and it never has to begin again."""
        await self.open()
        async with self._threads.transaction() as held:
            await held.run(lambda: connections[self.alias].connection.execute(TAKE_LOCK))

            async def borrow(work: Work[T], /) -> T:
                return await held.run(lambda: work(connections[self.alias].connection))

            yield held, BorrowedStore(self, borrow)


class SqliteHere(WakingStore, BorrowedStore):
    """On the connection that the calling thread has, in its transaction."""

    def __init__(self, alias: str) -> None:
        self.alias = alias
        super().__init__(lender_of(alias, BlockingClock()), self._on_connection)
        self.notifier = BlockingNotifier()

    def sibling(self) -> Any:
        return None

    async def _on_connection(self, work: Work[T], /) -> T:
        return on_connection(self.alias, work)


def lender_of(alias: str, clock: Clock) -> SqliteStore:
    """A store for a borrowed one to come from. It is never opened: its names and its clock are used."""
    return SqliteStore(f"{alias}.django", prefix=PREFIX, clock=clock)


def on_connection(alias: str, work: Work[T]) -> T:
    """What `work` returns, on the connection of the calling thread and in its transaction."""
    own = connections[alias]
    own.ensure_connection()
    own.validate_no_broken_transaction()
    connection = own.connection
    if not own.get_autocommit() and not connection.in_transaction:
        # The user commits: the savepoint of a write must not be the outermost.
        connection.execute("BEGIN")
    return work(connection)
