"""The SQLite store in Django's own file: a worker has the store's connections to it, the calling thread
its connection of Django's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from django.db import connections

from outlast.contrib.django.blocking import BlockingClock, BlockingNotifier
from outlast.contrib.django.threads import Threads
from outlast.contrib.django.wakeups import WakingStore, listen
from outlast.errors import InvalidValue
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import PREFIX, prefixed
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.transaction import BorrowedStore

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
