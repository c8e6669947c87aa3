"""The SQLite store in the file of a user's engine.

The store uses its own connections to the file, and checkpoints the WAL only under the write lock. The
engine's connections must not checkpoint during a commit, so automatic checkpoints are switched off on each
of them at checkout, and done as the store does when the WAL has grown (`outlast.stores.sqlite.wal`). In a
user's transaction the store's functions run on the user's connection.
"""

from __future__ import annotations

import asyncio
import sqlite3
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

from sqlalchemy import Connection as SqlConnection
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.util import await_only

from outlast.contrib.sqlalchemy.store import (
    AUTOCOMMIT,
    Binding,
    Transaction,
    check_same_database,
    unwrapped,
)
from outlast.contrib.sqlalchemy.transactions import JoiningStore, connection_of, flush
from outlast.errors import InvalidValue
from outlast.model.query import Projection
from outlast.ports.clock import Clock
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import PREFIX, Connection, connect
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.database import UNKNOWN_ROWS
from outlast.stores.sqlite.schema import install
from outlast.stores.sqlite.transaction import Borrow, TransactionStore
from outlast.stores.sqlite.wal import WalCheckpointer

T = TypeVar("T")


class SqlAlchemySqliteStore(JoiningStore[TransactionStore], SqliteStore):
    """A `SqliteStore` in the file of an application."""

    def __init__(
        self,
        binding: Binding,
        *,
        prefix: str = PREFIX,
        clock: Clock | None = None,
        projection: Projection | None = None,
    ) -> None:
        path = binding.engine.url.database
        if not path or path == ":memory:" or binding.engine.url.query:
            raise InvalidValue(
                f"{binding.where} is not a file, and a SQLite store needs one. Use sqlite:///app.db, "
                "without options"
            )
        if not prefix:
            raise InvalidValue("prefix='' is not possible: use a prefix such as 'outlast_'")
        super().__init__(
            path,
            prefix=prefix,
            clock=clock,
            connect=connect if binding.loops is not None else _opened_by(binding),
        )
        self.bind(binding)
        self._projection = projection

    async def open(self) -> None:
        engine = self.binding.engine
        if engine not in _kept:
            _kept.add(engine)
            _manage_wal(engine, str(self.database.path), in_loop=self.binding.loops is not None)
        await super().open()
        if self._projection is not None:
            projection, prefix = self._projection, self.database.prefix
            try:
                await self._session.write(
                    lambda db: install(db, projection, prefix), rows=UNKNOWN_ROWS, timeout=None
                )
            except BaseException:
                await self.close()
                raise

    def _inside(self, transaction: Transaction) -> TransactionStore:
        return _Borrowed(self, transaction)


class _Borrowed(TransactionStore):
    def __init__(self, store: SqlAlchemySqliteStore, transaction: Transaction) -> None:
        super().__init__(store, _borrow(store.binding, transaction))
        self._transaction = transaction

    async def settle(self) -> None:
        await flush(self._transaction)


def _borrow(binding: Binding, transaction: Transaction) -> Borrow:
    lock = asyncio.Lock()

    async def borrow(work: Work[T], /) -> T:
        def run(connection: SqlConnection) -> T:
            check_same_database(binding, connection.engine)
            return work(_ConnectionAdapter(connection))

        async with lock:
            try:
                if isinstance(transaction, AsyncSession):
                    return await (await transaction.connection()).run_sync(run)
                if isinstance(transaction, AsyncConnection):
                    return await transaction.run_sync(run)
                return await asyncio.to_thread(lambda: run(connection_of(transaction)))
            except Exception as error:
                found = unwrapped(error, binding.where)
                if found is error:
                    raise
                raise found from error

    return borrow


class _ConnectionAdapter:
    """Adapts a SQLAlchemy connection to the interface of the store's functions."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._begun = False

    def execute(self, sql: str, parameters: Any = (), /) -> _Rows:
        """Run one statement."""
        self._begin()
        return self._execute(sql, parameters or None)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Run one statement for each set of parameters."""
        self._begin()
        rows = list(parameters)
        return self._execute(sql, rows) if rows else None

    def close(self) -> None:
        """Nothing: the connection is the user's."""

    def _begin(self) -> None:
        """Take the write lock before the first read, if the transaction has not started."""
        if self._begun:
            return
        self._begun = True
        driver: Any = self._connection.connection.driver_connection
        if driver.in_transaction:
            return
        if driver.isolation_level is None:
            raise InvalidValue(AUTOCOMMIT)
        self._execute("BEGIN IMMEDIATE", None)

    def _execute(self, sql: str, parameters: Any) -> _Rows:
        try:
            result = self._connection.exec_driver_sql(sql, parameters)
        except DBAPIError as error:
            # The store's functions handle the driver's own errors.
            raise unwrapped(error, "the file") from error
        return _Rows([tuple(row) for row in result] if result.returns_rows else [])


class _Rows(list[Any]):
    """The rows of one statement."""

    def fetchall(self) -> list[Any]:
        """All rows."""
        return list(self)


def _opened_by(binding: Binding) -> Any:
    """Opens connections as the user's engine does, so that its listeners and connect arguments apply, and
    detaches them from the pool."""

    def opened(_: str) -> Connection:
        lent = binding.engine.raw_connection()
        driver: Any = lent.driver_connection
        lent.detach()
        if not isinstance(driver, sqlite3.Connection):
            raise InvalidValue(f"the engine's driver gives a {type(driver).__name__}: use sqlite3")
        driver.isolation_level = None  # the store sends BEGIN IMMEDIATE itself
        driver.execute("PRAGMA busy_timeout = 0").fetchall()  # the store waits in its own thread
        driver.row_factory = None
        return driver

    return opened


_kept: weakref.WeakSet[Engine] = weakref.WeakSet()


def _manage_wal(engine: Engine, path: str, *, in_loop: bool) -> None:
    """Switch off automatic checkpoints of the engine's connections, and checkpoint before a transaction."""
    keeper = WalCheckpointer(path)

    def look(driver: Any) -> None:
        if driver.in_transaction or not keeper.is_due():
            return
        if in_loop:
            await_only(asyncio.to_thread(keeper.checkpoint))  # does not block the loop
        else:
            keeper.checkpoint()

    def checkout(driver: Any, record: Any, _: Any) -> None:
        if not record.info.get("outlast"):
            keeper.take_over(driver)
            record.info["outlast"] = True

    def begin(connection: SqlConnection) -> None:
        look(connection.connection.driver_connection)

    event.listen(engine, "checkout", checkout)
    event.listen(engine, "begin", begin, insert=True)  # before the user's own listeners
