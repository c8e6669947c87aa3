"""Where connections come from: a pool of our own, a pool of the user's, one connection of theirs, or
whatever else can lend something that speaks as a `Link` does."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncpg

from outlast.errors import InvalidValue
from outlast.stores.postgres.rows import Row

_logger = logging.getLogger("outlast.postgres")

SCHEMES = ("postgresql", "postgres")
CLOSE_SECONDS = 10.0
LEAVE_SECONDS = 3.0
"""How long a pool may take to close: nobody works with it any more."""
IN_HAND = 4
"""Connections that are not given back to the pool, which ends those that nobody uses for minutes: as many
as are at work all the time."""
IDLE_SECONDS = 240.0
"""After so long a network may have forgotten a connection without a word: it is not used again."""


Place = Any
"""A URL, an asyncpg pool, an asyncpg connection, or a `Source`."""


class Link(Protocol):
    """What our statements need of a connection. asyncpg's is one; psycopg.py makes one of psycopg's.

    A statement is one round trip and, outside `transaction`, one transaction: parameters are `$1`, …,
    and their types are what the server makes of the statement.
    """

    async def fetch(self, query: str, *args: Any, timeout: float | None = None) -> list[Row]:
        """The rows of one statement."""
        ...

    async def execute(self, query: str) -> object:
        """Run a script of several statements, without parameters."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Commit at the end of the context, roll back if that is an error."""
        ...

    def is_in_transaction(self) -> bool:
        """Whether what is done now waits for a COMMIT."""
        ...

    def get_server_pid(self) -> int:
        """The process of the server, as the connection was told: a pooler makes one up."""
        ...


class Source(ABC):
    """Where connections come from."""

    name = "the connections that you passed in,"
    """What they are, as a message may show it."""

    @abstractmethod
    def acquire(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Link`, for as long as the context lasts."""

    def lend(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Link` for one statement of ours, which leaves nothing behind."""
        return self.acquire(timeout)

    def hold(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        """A `Link` for a transaction of a step, which lasts as long as the step does."""
        return self.acquire(timeout)

    async def close(self) -> None:
        """Give back what is ours."""


class PoolSource(Source):
    """A pool of the user's, which is never closed here. Steps hold at most half of its connections:
    commits and renewals of other runs need the rest."""

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
                    "your pool has one connection, which a transactional step would hold while the "
                    "claim of its run is renewed: give it a max_size of 2 or more"
                )
            self._free = asyncio.Semaphore(half)
        async with asyncio.timeout(timeout):
            await self._free.acquire()
        try:
            async with self.acquire(timeout) as connection:
                yield connection
        finally:
            self._free.release()


class OwnPool(Source):
    """A pool of our own. To give a connection back to asyncpg's pool takes a task and three turns of the
    loop, so that some that have done a statement are kept in hand for the next one."""

    def __init__(self, pool: Any) -> None:
        self.pool = pool
        self.in_hand: list[tuple[Any, float]] = []  # and since when
        self.waiting = 0
        self.is_closing = False

    def acquire(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        return _Lent(self, timeout, keep=False)

    def lend(self, timeout: float | None) -> AbstractAsyncContextManager[Any]:
        return _Lent(self, timeout, keep=True)

    async def close(self) -> None:
        self.is_closing = True
        # A call that hangs is not waited for: its connection ends with us.
        with suppress(Exception):
            async with asyncio.timeout(LEAVE_SECONDS):
                while self.in_hand:
                    await self.pool.release(self.in_hand.pop()[0])
                await self.pool.close()
        self.pool.terminate()


class _Lent:
    """A connection of `OwnPool`, for as long as the context lasts."""

    __slots__ = ("_connection", "_keep", "_source", "_timeout")

    def __init__(self, source: OwnPool, timeout: float | None, *, keep: bool) -> None:
        self._source = source
        self._timeout = timeout
        self._keep = keep
        self._connection: Any = None

    async def __aenter__(self) -> Any:
        source = self._source
        while source.in_hand:
            self._connection, since = source.in_hand.pop()
            with suppress(asyncpg.InterfaceError):  # the pool has noticed that it ended
                if time.monotonic() - since > IDLE_SECONDS:
                    self._connection.terminate()
                elif not self._connection.is_closed():
                    return self._connection
            await source.pool.release(self._connection)
        source.waiting += 1
        try:
            self._connection = await source.pool.acquire(timeout=self._timeout)
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
        # Whoever waits is woken by the pool. It also sees to a connection that was cut off.
        give_back = not self._keep or error is not None or source.waiting or source.is_closing
        if give_back or len(source.in_hand) >= IN_HAND:
            await source.pool.release(self._connection)
        else:
            source.in_hand.append((self._connection, time.monotonic()))


class StepPool(Source):
    """A pool of our own for transactions of steps, apart from that of our statements: steps wait for
    each other, and nothing else waits for a step."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    @asynccontextmanager
    async def acquire(self, timeout: float | None) -> AsyncIterator[Any]:
        connection = await self._pool.acquire(timeout=timeout)
        try:
            yield connection
        finally:
            await self._give_back(connection)

    async def _give_back(self, connection: Any) -> None:
        """The pool resets it, and closes it if that fails. The transaction has ended before: an error
        here says nothing about its outcome."""
        try:
            if not connection.is_closed() and connection.has_codecs():
                connection.terminate()
            await self._pool.release(connection)
        except Exception as error:  # noqa: BLE001 - of a connection that is not used again
            _logger.info("a step's connection could not be reset and was closed: %s", error)

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._pool.close()
        self._pool.terminate()


class OneSource(Source):
    """A single connection: one call at a time."""

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
    """A connection of our own pool. We leave nothing in a session, so there is nothing to reset:
    that would be a round trip per call."""

    def get_reset_query(self) -> str:
        """Nothing."""
        return ""


class StepConnection(asyncpg.Connection):  # type: ignore[misc,type-arg,unused-ignore]
    """A connection that a step has used, whose session may hold anything: a role, a search path,
    timeouts, advisory locks, temporary tables, prepared statements. All of it ends with the step."""

    _codecs = False

    def get_reset_query(self) -> str:
        """Everything. It prepares no statement under a name, so there is none to be lost."""
        return "DISCARD ALL"

    async def set_type_codec(self, *args: Any, **options: Any) -> None:
        """The server does not know of it: the connection is closed after the step."""
        self._codecs = True
        await super().set_type_codec(*args, **options)

    async def set_builtin_type_codec(self, *args: Any, **options: Any) -> None:
        """The same."""
        self._codecs = True
        await super().set_builtin_type_codec(*args, **options)

    def has_codecs(self) -> bool:
        """Whether values of some type are read or written in a way of the step's own."""
        return self._codecs


class PooledStepConnection(StepConnection):
    """The same behind a pooler, where the session belongs to other clients once the transaction has
    ended: what can be reset is reset before its COMMIT."""

    def get_reset_query(self) -> str:
        """Nothing: it would reach a session of another client."""
        return ""


def shown(place: Place) -> str:
    """Where this is, as it may be shown: never with a user's password."""
    if isinstance(place, Source):
        return place.name
    if not isinstance(place, str):
        if hasattr(place, "acquire") or hasattr(place, "fetch"):
            return Source.name
        raise InvalidValue(
            f"{type(place).__name__} is no place for a store: use a URL, an asyncpg pool, or an "
            "asyncpg connection"
        )
    try:
        parts = urlsplit(place)
        port = parts.port
    except ValueError:
        # The message would quote what it cannot read, and that may be the password.
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
