"""Adapters of psycopg 3 connections, for applications that use psycopg.

The store's statements have parameters `$1`, … whose types the server infers. psycopg sends a type chosen by
the size of each number, so numbers and arrays of numbers are sent as untyped text. That also keeps the
number of prepared statements small, because psycopg keys them by parameter types.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from outlast.stores.postgres.connection import keeping_cancellation
from outlast.stores.postgres.rows import Row

T = TypeVar("T")

CANCEL_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 1.0


class PsycopgConnection:
    """Adapts a `psycopg.AsyncConnection`."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """The rows of one statement."""
        cursor = psycopg.AsyncRawCursor(self._connection, row_factory=tuple_row)
        with keeping_cancellation():
            async with asyncio.timeout(timeout):
                await cursor.execute(query.encode(), _plain(args), binary=True)
                return [] if cursor.description is None else list(await cursor.fetchall())

    async def execute(self, query: str) -> None:
        """Run a script of several statements."""
        with keeping_cancellation():
            await psycopg.AsyncRawCursor(self._connection).execute(query.encode())

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit at the end of the context, roll back on an error."""
        async with self._connection.transaction():
            yield

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return _is_in_transaction(self._connection)

    def get_server_pid(self) -> int:
        """The process of the server."""
        return self._connection.info.backend_pid


Lend = Callable[[], AbstractContextManager["psycopg.Connection[Any]"]]
"""Lends a connection; called in a thread."""


class ThreadedPsycopgConnection:
    """Adapts a `psycopg.Connection`, which is borrowed for a statement and used in a thread of `threads`: one hop to
    the thread and back per statement."""

    def __init__(self, lend: Lend, threads: Executor) -> None:
        self._lend = lend
        self._threads = threads
        self._pid = 0
        self._kept: psycopg.Connection[Any] | None = None

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """The rows of one statement."""
        return await self._hop(partial(rows_of, query=query, args=args), timeout)

    async def execute(self, query: str) -> None:
        """Run a script of several statements."""
        await self._hop(partial(run_script, query=query), None)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Commit at the end of the context, roll back on an error."""
        loop = asyncio.get_running_loop()
        lent = self._lend()
        connection = await loop.run_in_executor(self._threads, lent.__enter__)
        self._kept = connection
        began = connection.transaction()
        ended: tuple[Any, Any, Any] = (None, None, None)
        try:
            await loop.run_in_executor(self._threads, began.__enter__)
            yield
        except BaseException as error:
            ended = (type(error), error, error.__traceback__)
            raise
        finally:
            self._kept = None
            await loop.run_in_executor(self._threads, began.__exit__, *ended)
            await loop.run_in_executor(self._threads, lent.__exit__, *ended)

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        with self._lend() as connection:
            return _is_in_transaction(connection)

    def get_server_pid(self) -> int:
        """The process of the server that has done the last statement."""
        return self._pid

    async def _hop(self, work: Callable[[psycopg.Connection[Any]], T], timeout: float | None) -> T:
        stop = _Stop()

        def do() -> T:
            if self._kept is not None:
                return work(self._kept)
            with self._lend() as connection:
                self._pid = connection.info.backend_pid
                with stop.of(connection):
                    return work(connection)

        job = self._threads.submit(do)
        hop = asyncio.wrap_future(job)
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(hop)
        except (asyncio.CancelledError, TimeoutError):
            # Cancel the statement, to free the thread and its connection. Wait for that briefly, so that the
            # next call does not find the run locked.
            hop.add_done_callback(_forget)
            if not job.cancel():
                asyncio.get_running_loop().run_in_executor(None, stop)
                await asyncio.wait((hop,), timeout=STOP_TIMEOUT_S)
            raise


class _Stop:
    """Cancels the statement of an abandoned call, and never the next one on its connection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: psycopg.Connection[Any] | None = None

    @contextmanager
    def of(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """While the connection runs a statement."""
        self._busy = connection
        try:
            yield
        finally:
            with self._lock:
                self._busy = None

    def __call__(self) -> None:
        with self._lock, suppress(psycopg.Error):
            if self._busy is not None:
                self._busy.cancel_safe(timeout=CANCEL_TIMEOUT_S)


def rows_of(connection: psycopg.Connection[Any], *, query: str, args: tuple[Any, ...]) -> list[Row]:
    """The rows of one statement, blocking."""
    cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
    cursor.execute(query.encode(), _plain(args), binary=True)
    return [] if cursor.description is None else list(cursor.fetchall())


def run_script(connection: psycopg.Connection[Any], *, query: str) -> None:
    """Run a script of several statements, blocking."""
    psycopg.RawCursor(connection).execute(query.encode())


def _forget(hop: asyncio.Future[Any]) -> None:
    if not hop.cancelled():
        hop.exception()


def _is_in_transaction(connection: Any) -> bool:
    # Without autocommit psycopg begins one with the next statement.
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    return not (connection.autocommit and idle)


def _plain(args: tuple[Any, ...]) -> list[Any]:
    return [_untyped(arg) for arg in args]


def _untyped(arg: Any) -> Any:
    if isinstance(arg, bool):
        return arg
    if isinstance(arg, int):
        return str(arg)
    if isinstance(arg, (list, tuple)):
        values = list(arg)
        first = next((value for value in values if value is not None), None)
        if isinstance(first, int):
            return "{" + ",".join("NULL" if v is None else str(v) for v in values) + "}"
        return values
    return arg
