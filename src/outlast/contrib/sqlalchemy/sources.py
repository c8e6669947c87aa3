"""Where links to PostgreSQL come from: the pool of an engine, or the transaction of a session.

Our statements go to the driver's connection, past SQLAlchemy's cursors: they are written for the server
already, and need nothing compiled. The pool, the way to connect and the transaction are the user's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from outlast.contrib.sqlalchemy.binding import (
    AUTOCOMMIT,
    Binding,
    Transaction,
    check_same_place,
    unwrapped,
)
from outlast.contrib.sqlalchemy.transactions import connection_of
from outlast.errors import InvalidValue
from outlast.stores.postgres.connection import Connection, ConnectionSource
from outlast.stores.postgres.driver_errors import translate

THREADS = 8
EACH_ITS_OWN = {"isolation_level": "AUTOCOMMIT"}
"""A statement of ours is a transaction of its own."""


def source_of(binding: Binding) -> ConnectionSource:
    """Links from the pool of an engine."""
    return LoopSource(binding) if binding.loops is not None else ThreadSource(binding)


class LoopSource(ConnectionSource):
    """Of an `AsyncEngine`."""

    def __init__(self, binding: Binding) -> None:
        assert binding.loops is not None
        self._engine = binding.loops.execution_options(**EACH_ITS_OWN)
        self.name = binding.where

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Connection]:
        try:
            async with asyncio.timeout(timeout):
                connection = await self._engine.connect()
                driver = await _living(connection)
        except Exception as error:
            raise unwrapped(error, self.name) from error
        try:
            yield _link(driver)
        finally:
            if _is_closed(driver):
                await connection.invalidate()
            await connection.close()


class ThreadSource(ConnectionSource):
    """Of an `Engine`: a statement is done in a thread, from the pool and back to it in one go."""

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
    """Of a session or connection of the user's, inside its transaction; never closed here."""

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
        check_same_place(self._binding, connection.sync_engine)
        link: Connection = _link(await _living(connection))
        if not link.is_in_transaction():
            # The dialect of asyncpg sends BEGIN with the first statement that it sees.
            await connection.exec_driver_sql("SELECT 1")
        if not link.is_in_transaction():
            raise InvalidValue(AUTOCOMMIT)
        return link

    @contextmanager
    def _lend(self) -> Iterator[Any]:
        try:
            connection = connection_of(self._transaction)
            check_same_place(self._binding, connection.engine)
            driver: Any = connection.connection.driver_connection
        except Exception as error:
            raise unwrapped(error, self.name) from error
        if driver.autocommit:
            raise InvalidValue(AUTOCOMMIT)
        yield driver


async def _living(connection: AsyncConnection) -> Any:
    """The driver's connection; a new one if the server has ended the one of the pool."""
    for _ in range(100):
        driver = (await connection.get_raw_connection()).driver_connection
        if not _is_closed(driver) or connection.in_transaction():
            return driver
        await connection.invalidate()
    raise InvalidValue("the engine gives out connections that are closed")


def _link(driver: Any) -> Any:
    if hasattr(driver, "fetchval"):
        return driver  # asyncpg's own
    from outlast.stores.postgres.psycopg import PsycopgConnection

    return PsycopgConnection(driver)


def _is_closed(driver: Any) -> bool:
    closed = getattr(driver, "is_closed", None)
    return bool(closed() if closed is not None else driver.closed)
