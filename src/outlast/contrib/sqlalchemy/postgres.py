"""The PostgreSQL store on a user's engine, and the sources of its connections: the pool of the engine, or
the transaction of a session.

Statements go to the driver's connection, past SQLAlchemy's cursors: they are PostgreSQL's SQL and need no
compilation. Pool, connection settings and transactions are the user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from outlast.contrib.sqlalchemy.store import (
    AUTOCOMMIT,
    Binding,
    Transaction,
    check_same_database,
    unwrapped,
)
from outlast.contrib.sqlalchemy.transactions import JoiningStore, connection_of, flush
from outlast.errors import InvalidValue, ReadOnlyStore
from outlast.model.query import Projection
from outlast.ports.clock import Clock
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.connection import Connection, ConnectionSource, keeping_cancellation
from outlast.stores.postgres.driver_errors import translate
from outlast.stores.postgres.schema import install
from outlast.stores.postgres.transaction import TransactionStore

THREADS = 8
EACH_ITS_OWN = {"isolation_level": "AUTOCOMMIT"}
"""Each statement of the store is a transaction of its own."""


def source_of(binding: Binding) -> ConnectionSource:
    """The source for the pool of an engine."""
    return LoopSource(binding) if binding.loops is not None else ThreadSource(binding)


class LoopSource(ConnectionSource):
    """Connections of an `AsyncEngine`."""

    def __init__(self, binding: Binding) -> None:
        assert binding.loops is not None
        self._engine = binding.loops.execution_options(**EACH_ITS_OWN)
        self.name = binding.where

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Connection]:
        with keeping_cancellation():
            try:
                async with asyncio.timeout(timeout):
                    connection = await self._engine.connect()
                    driver = await _open_driver(connection)
            except Exception as error:
                raise unwrapped(error, self.name) from error
            try:
                yield _link(driver)
            except (asyncio.CancelledError, TimeoutError):
                # asyncpg still waits for the server to cancel the statement: the next user of the connection
                # would be cancelled with it.
                await connection.invalidate()
                raise
            finally:
                if _is_closed(driver):
                    await connection.invalidate()
                await connection.close()


class ThreadSource(ConnectionSource):
    """Connections of an `Engine`: each statement checks out a connection, in a thread."""

    def __init__(self, binding: Binding) -> None:
        self._engine = binding.engine.execution_options(**EACH_ITS_OWN)
        self.name = binding.where
        self._threads = ThreadPoolExecutor(THREADS, "outlast-sqlalchemy")

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Connection]:
        from outlast.stores.postgres.psycopg import ThreadedPsycopgConnection

        yield ThreadedPsycopgConnection(self._lend, self._threads)

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        try:
            connection = self._engine.connect()
            driver = connection.connection.driver_connection
        except Exception as error:
            found = unwrapped(error, self.name)
            raise translate(found, self.name, sent=False, writes=False) or found from error
        try:
            yield driver
        finally:
            if _is_closed(driver):
                connection.invalidate()
            connection.close()


class TransactionSource(ConnectionSource):
    """The connection of a user's session or connection, inside its transaction; never closed here."""

    def __init__(self, binding: Binding, transaction: Transaction) -> None:
        self._binding = binding
        self._transaction = transaction
        self._lock = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self.name = binding.where

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Connection]:
        async with asyncio.timeout(timeout):
            await self._lock.acquire()
        try:
            yield await self._link()
        finally:
            self._lock.release()

    async def _link(self) -> Connection:
        transaction = self._transaction
        try:
            if isinstance(transaction, AsyncSession):
                return await self._in_loop(await transaction.connection())
            if isinstance(transaction, AsyncConnection):
                return await self._in_loop(transaction)
        except Exception as error:
            raise unwrapped(error, self.name) from error
        from outlast.stores.postgres.psycopg import ThreadedPsycopgConnection

        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "outlast-transaction")
        return ThreadedPsycopgConnection(self._lend, self._threads)

    async def _in_loop(self, connection: AsyncConnection) -> Connection:
        check_same_database(self._binding, connection.sync_engine)
        link: Connection = _link(await _open_driver(connection))
        if not link.is_in_transaction():
            # The dialect of asyncpg sends BEGIN with its first statement.
            await connection.exec_driver_sql("SELECT 1")
        if not link.is_in_transaction():
            raise InvalidValue(AUTOCOMMIT)
        return link

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        try:
            connection = connection_of(self._transaction)
            check_same_database(self._binding, connection.engine)
            driver: Any = connection.connection.driver_connection
        except Exception as error:
            raise unwrapped(error, self.name) from error
        if driver.autocommit:
            raise InvalidValue(AUTOCOMMIT)
        yield driver


async def _open_driver(connection: AsyncConnection) -> Any:
    """The driver's connection; a new one if the server has closed the pooled one."""
    for _ in range(100):
        driver = (await connection.get_raw_connection()).driver_connection
        if not _is_closed(driver) or connection.in_transaction():
            return driver
        await connection.invalidate()
    raise InvalidValue("the engine returns closed connections: set pool_pre_ping=True")


def _link(driver: Any) -> Any:
    if hasattr(driver, "fetchval"):
        return driver  # asyncpg's
    from outlast.stores.postgres.psycopg import PsycopgConnection

    return PsycopgConnection(driver)


def _is_closed(driver: Any) -> bool:
    closed = getattr(driver, "is_closed", None)
    return bool(closed() if closed is not None else driver.closed)


class SqlAlchemyPostgresStore(JoiningStore[TransactionStore], PostgresStore):
    """A `PostgresStore` on the connections of an engine."""

    def __init__(
        self,
        binding: Binding,
        *,
        schema: str = "outlast",
        prefix: str = "",
        notify: bool = True,
        clock: Clock | None = None,
        projection: Projection | None = None,
    ) -> None:
        super().__init__(
            source_of(binding), schema=schema, prefix=prefix, notify=notify, clock=clock
        )
        self.bind(binding)
        self._projection = projection

    async def open(self) -> None:
        await super().open()
        try:
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def _prepare(self) -> None:
        server = self.database.server
        if server is not None and server.in_recovery:
            raise ReadOnlyStore(
                f"{self.binding.where} is a read-only standby: pass the engine of the primary, and keep "
                "the replica for reading"
            )
        if self._projection is not None:
            async with self.database.acquire() as link:
                await install(link, self._projection, self.database.queries)

    def sibling(self) -> PostgresStore | None:
        if self.binding.loops is not None:
            return None  # connections belong to one loop
        queries = self.database.queries
        sibling = SqlAlchemyPostgresStore(
            self.binding,
            schema=queries.schema,
            prefix=queries.prefix,
            notify=False,
            clock=self._session.clock,
        )
        sibling._session.shift, sibling.notifier = self._session.shift, self.notifier
        return sibling

    def _inside(self, transaction: Transaction) -> TransactionStore:
        return _Borrowed(self, transaction)


class _Borrowed(TransactionStore):
    def __init__(self, store: SqlAlchemyPostgresStore, transaction: Transaction) -> None:
        super().__init__(store, TransactionSource(store.binding, transaction))
        self._transaction = transaction

    async def settle(self) -> None:
        await flush(self._transaction)
        await super().settle()
