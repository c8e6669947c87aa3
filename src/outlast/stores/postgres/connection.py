"""Connections, and where they come from: a pool of the store, the user's pool, the user's connection, or any
other object that lends a `Connection`."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg

from outlast.errors import InvalidValue
from outlast.stores.postgres.rows import Row

_logger = logging.getLogger("outlast.postgres")

SCHEMES = ("postgresql", "postgres")
CLOSE_TIMEOUT_S = 10.0
POOL_CLOSE_TIMEOUT_S = 3.0
KEPT_CONNECTIONS = 4
"""Idle connections that are not returned to asyncpg's pool, which closes those that are idle for minutes."""
CONNECT_ALONE_S = 3.0
"""How long a connection may take to be made when its caller waits no longer. Not for ever: after a partition of the
network a new attempt is faster than one that began in it."""

MAX_IDLE_S = 240.0
"""A kept connection that is idle for longer is closed: a firewall may have dropped it silently."""


Location = Any
"""A URL, an asyncpg pool, an asyncpg connection, or a `ConnectionSource`."""


class Connection(Protocol):
    """What the store needs of a driver's connection. asyncpg's has it; psycopg.py adapts psycopg's.

    A statement is one round trip and, outside `transaction`, one transaction. Parameters are `$1`, …, and the
    server infers their types from the statement.
    """

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """The rows of one statement."""
        ...

    async def execute(self, query: str) -> object:
        """Run a script of several statements, without parameters."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Commit at the end of the context, roll back on an error."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether a transaction is open."""
        ...

    def get_server_pid(self) -> int:
        """The server's process id as the client sees it: a pooler invents one."""
        ...


@contextmanager
def keeping_cancellation() -> Iterator[None]:
    """Raise `CancelledError` at the end if the task was cancelled inside. psycopg waits with `asyncio.wait_for`, which on
    Python 3.11 returns normally if a cancellation arrives together with the data. A background task would then
    never end, and closing the engine would wait for it forever."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    yield
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


class ConnectionSource(ABC):
    """Lends connections."""

    name = "the connections that you passed in,"
    """How a message calls them."""

    @abstractmethod
    def acquire(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Connection`, for as long as the context lasts."""

    def lend(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Connection` for one statement of the store, which leaves no session state."""
        return self.acquire(timeout)

    def hold(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Connection` for the transaction of a step, which lasts as long as the step."""
        return self.acquire(timeout)

    async def close(self) -> None:
        """Close what the store has opened."""


class UserPool(ConnectionSource):
    """The user's pool, which is never closed here. Steps hold at most half of its connections: commits and
    renewals of other runs need the rest."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._free: asyncio.Semaphore | None = None

    def acquire(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        context: AbstractAsyncContextManager[Any] = self._pool.acquire(timeout=timeout)
        return context

    @asynccontextmanager
    async def hold(self, timeout: float | None) -> AsyncIterator[Any]:
        if self._free is None:
            half = self._pool.get_max_size() // 2
            if half < 1:
                raise InvalidValue(
                    "your pool has one connection: a transactional step would hold it while the claim of "
                    "its run has to be renewed. Set max_size to 2 or more"
                )
            self._free = asyncio.Semaphore(half)
        async with asyncio.timeout(timeout):
            await self._free.acquire()
        try:
            async with self.acquire(timeout) as connection:
                yield connection
        finally:
            self._free.release()


class OwnPool(ConnectionSource):
    """The store's pool. A return to asyncpg's pool costs a task and three turns of the event loop, so a few
    connections are kept for the next statement.

    A caller that has no more time gives up, but one connection that is being made is made to its end: if connecting
    takes longer than all callers wait, as on a busy machine after a restart of the server, none would ever be made."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.kept: list[tuple[Any, float]] = []  # with the time of their last use
        self.waiting = 0
        self.is_closing = False
        self._connecting: asyncio.Task[Any] | None = None

    def give_up(self, acquiring: asyncio.Task[Any]) -> None:
        """Wait for a connection no longer. The first that is given up is made all the same."""
        if self._connecting is None and not self.is_closing:
            self._connecting = acquiring
            acquiring.add_done_callback(self._connected)
            asyncio.get_running_loop().call_later(CONNECT_ALONE_S, acquiring.cancel)
        elif not acquiring.cancel() and not acquiring.cancelled() and not acquiring.exception():
            self._keep(acquiring.result())

    def _connected(self, acquiring: asyncio.Task[Any]) -> None:
        self._connecting = None
        if not acquiring.cancelled() and acquiring.exception() is None:
            self._keep(acquiring.result())

    def _keep(self, connection: Any) -> None:
        if self.waiting or self.is_closing or len(self.kept) >= KEPT_CONNECTIONS:
            self._returning = asyncio.ensure_future(self.pool.release(connection))
        else:
            self.kept.append((connection, time.monotonic()))

    def acquire(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        return _Lease(self, timeout, keep=False)

    def lend(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        return _Lease(self, timeout, keep=True)

    async def close(self) -> None:
        self.is_closing = True
        if self._connecting is not None:
            self._connecting.cancel()
        # Does not wait for a call that hangs: its connection is terminated.
        with suppress(Exception):
            async with asyncio.timeout(POOL_CLOSE_TIMEOUT_S):
                while self.kept:
                    await self.pool.release(self.kept.pop()[0])
                await self.pool.close()
        self.pool.terminate()


class _Lease:
    """A connection of `OwnPool`, for as long as the context lasts."""

    __slots__ = ("_connection", "_keep", "_source", "_timeout")

    def __init__(self, source: OwnPool, timeout: float | None, *, keep: bool) -> None:
        self._source = source
        self._timeout = timeout
        self._keep = keep
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        source = self._source
        while source.kept:
            self._connection, since = source.kept.pop()
            with suppress(asyncpg.InterfaceError):  # the pool has closed it
                if time.monotonic() - since > MAX_IDLE_S:
                    self._connection.terminate()
                elif not self._connection.is_closed():
                    return self._connection
            await source.pool.release(self._connection)
        source.waiting += 1
        acquiring = asyncio.ensure_future(source.pool.acquire())
        try:
            async with asyncio.timeout(self._timeout):
                self._connection = await asyncio.shield(acquiring)
        except (TimeoutError, asyncio.CancelledError):
            source.give_up(acquiring)
            raise
        finally:
            source.waiting -= 1
        return self._connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        source = self._source
        # The pool wakes waiters, and replaces a connection that was cut off.
        give_back = not self._keep or error is not None or source.waiting or source.is_closing
        if give_back or len(source.kept) >= KEPT_CONNECTIONS:
            await source.pool.release(self._connection)
        else:
            source.kept.append((self._connection, time.monotonic()))


class StepPool(ConnectionSource):
    """The store's pool for transactions of steps, separate from that of its statements: steps wait for each
    other, and nothing else waits for a step."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        connection = await self._pool.acquire(timeout=timeout)
        try:
            yield connection
        finally:
            await self._return(connection)

    async def _return(self, connection: Any) -> None:
        """The pool resets the connection, and closes it if that fails. The transaction has ended before, so
        that an error here does not affect its outcome."""
        try:
            if not connection.is_closed() and connection.has_codecs():
                connection.terminate()
            await self._pool.release(connection)
        except Exception as error:  # noqa: BLE001 - of a connection that is not used again
            _logger.info("a step's connection could not be reset and was closed: %s", error)

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(POOL_CLOSE_TIMEOUT_S):
                await self._pool.close()
        self._pool.terminate()


class UserConnection(ConnectionSource):
    """The user's single connection: one call at a time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        async with asyncio.timeout(timeout):
            await self._lock.acquire()
        try:
            yield self._connection
        finally:
            self._lock.release()


class OwnConnection(asyncpg.Connection):  # type: ignore[misc,type-arg,unused-ignore]
    """A connection of the store's pool. The store leaves no session state, so a reset, which would cost a
    round trip per call, is skipped."""

    def get_reset_query(self) -> str:
        """None."""
        return ""


class StepConnection(asyncpg.Connection):  # type: ignore[misc,type-arg,unused-ignore]
    """A connection for steps, which may leave any session state: a role, a search path, timeouts, advisory
    locks, temporary tables, prepared statements. All of it is reset after the step."""

    _codecs = False

    def get_reset_query(self) -> str:
        """Everything. There are no named prepared statements to lose."""
        return "DISCARD ALL"

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        """Codecs are client state, which no reset ends: the connection is closed after the step."""
        self._codecs = True
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        """As above."""
        self._codecs = True
        await super().set_builtin_type_codec(*args, **options)

    def has_codecs(self) -> bool:
        """Whether the step has set a codec."""
        return self._codecs


class PooledStepConnection(StepConnection):
    """The same behind a pooler, where the session belongs to another client after the transaction: the store
    resets it before the COMMIT."""

    def get_reset_query(self) -> str:
        """Nothing: it would reach the session of another client."""
        return ""


def display_name(place: Location) -> str:
    """The location for messages, without user and password."""
    if isinstance(place, ConnectionSource):
        return place.name
    if not isinstance(place, str):
        if hasattr(place, "acquire") or hasattr(place, "fetch"):
            return ConnectionSource.name
        raise InvalidValue(
            f"{type(place).__name__} is not a location of a store: use a URL, an asyncpg pool, or an "
            "asyncpg connection"
        )
    try:
        parts = urlsplit(place)
        port = parts.port
    except ValueError:
        # The message of the error could quote the password.
        raise InvalidValue(
            "the URL cannot be read: write it as postgresql://user:password@host:port/database and "
            "percent-encode special characters of the password"
        ) from None
    if parts.scheme not in SCHEMES:
        raise InvalidValue(
            f"a URL that starts with {parts.scheme!r} is not PostgreSQL's: use postgresql://…"
        )
    host = parts.hostname or "localhost"
    return f"postgresql://{host}{f':{port}' if port else ''}{parts.path}"
