"""The PostgreSQL store on Django's connections: the one of the calling thread, or for a worker those of
threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from django.db import connections, transaction

from outlast.contrib.django.threads import HeldTransaction, Threads
from outlast.contrib.django.wakeups import (
    BlockingClock,
    BlockingNotifier,
    NotificationListener,
    WakingStore,
    listen,
)
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.connection import ConnectionSource
from outlast.stores.postgres.psycopg import ThreadedPsycopgConnection, rows_of, run_script
from outlast.stores.postgres.rows import Row
from outlast.stores.postgres.transaction import TransactionStore

PREFIX = "outlast_"
THREADS = 10


class DjangoPostgresStore(PostgresStore):
    """The store of a worker. `alias` names the database, `schema` the schema of the tables."""

    plain_transactions = True

    def __init__(
        self,
        alias: str = "default",
        *,
        schema: str = "public",
        notify: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self.alias = alias
        self._source = DjangoSource(alias)
        super().__init__(self._source, schema=schema, prefix=PREFIX, notify=notify, clock=clock)
        self._listening = NotificationListener(alias, self.database.notifier) if notify else None
        listen(self.notifier)

    async def open(self) -> None:
        await super().open()
        server = self.database.server
        if self._listening is not None and server is not None and not server.pooled:
            self._listening.start()

    def sibling(self) -> DjangoPostgresStore:
        sibling = DjangoPostgresStore(
            self.alias,
            schema=self.database.queries.schema,
            notify=False,
            clock=self._session.clock,
        )
        sibling._session.shift, sibling.notifier = self._session.shift, self.notifier
        return sibling

    async def close(self) -> None:
        if self._listening is not None:
            await asyncio.to_thread(self._listening.stop)
        await super().close()
        await self._source.end()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        """`transaction.atomic` in a separate thread, in which a plain step runs too."""
        await self.open()
        async with self._source.threads.transaction() as held:
            yield held, TransactionStore(self, HeldSource(held))


class DjangoSource(ConnectionSource):
    """Connections of the store's own threads, created and configured by Django."""

    def __init__(self, alias: str) -> None:
        self.name = f"Django's database {alias!r},"
        self.threads = Threads(alias, THREADS)

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        yield _DjangoLink(self.threads)

    async def end(self) -> None:
        """Close the connections. New threads are started if the source is used again."""
        await self.threads.close()


class _DjangoLink(ThreadedPsycopgConnection):
    def __init__(self, threads: Threads) -> None:
        super().__init__(self._lent, threads.executor())
        self._own = threads

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        yield self._own.connection()


class HeldSource(ConnectionSource):
    """The connection of an open transaction, which belongs to one thread."""

    def __init__(self, held: HeldTransaction) -> None:
        self._held = held

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        yield ThreadedPsycopgConnection(self._lent, self._held.threads)

    @contextmanager
    def _lent(self) -> Iterator[Any]:
        with transaction.mark_for_rollback_on_error(self._held.alias):
            yield connections[self._held.alias].connection


class PostgresThreadStore(WakingStore, TransactionStore):
    """The store on the connection of the calling thread, in its transaction."""

    def __init__(self, alias: str, schema: str) -> None:
        self.alias = alias
        lender = PostgresStore(
            ThreadConnectionSource(alias),
            schema=schema,
            prefix=PREFIX,
            notify=False,
            clock=BlockingClock(),
        )
        super().__init__(lender, ThreadConnectionSource(alias))
        self.notifier = BlockingNotifier()

    def sibling(self) -> None:
        return None


class ThreadConnectionSource(ConnectionSource):
    """The connection of the calling thread."""

    def __init__(self, alias: str) -> None:
        self.name = f"Django's database {alias!r},"
        self._alias = alias

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        yield ThreadConnection(self._alias)


class ThreadConnection:
    """Executes statements on it, blocking the thread."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """The rows of one statement."""
        with self._connection() as connection:
            return rows_of(connection, query=query, args=args)

    async def execute(self, query: str) -> None:
        """Run a script of several statements."""
        with self._connection() as connection:
            run_script(connection, query=query)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Django's `transaction.atomic`."""
        with transaction.atomic(using=self._alias):
            yield

    def is_in_transaction(self) -> bool:
        """Whether the connection is in a transaction."""
        own = connections[self._alias]
        return bool(own.in_atomic_block or not own.get_autocommit())

    def get_server_pid(self) -> int:
        """The process id of the server process."""
        with self._connection() as connection:
            return int(connection.info.backend_pid)

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        own = connections[self._alias]
        own.ensure_connection()
        own.validate_no_broken_transaction()
        # Django must know that the server has aborted the transaction. Otherwise it would commit nothing, and
        # call the functions of `on_commit`.
        with transaction.mark_for_rollback_on_error(self._alias):
            yield own.connection
