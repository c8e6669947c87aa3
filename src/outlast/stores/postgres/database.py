"""The connections of a store and its queues, and the statements that they send.

With a URL there are three pools: one for statements, one with a single connection for renewals, so that a
worker whose connections are all busy keeps its leases, and one for transactions of steps, which may take
long. A pool, connection or `ConnectionSource` of the user serves everything, and is never closed here.

A call is one statement and leaves no session state, so that any connection serves it, also behind a pooler
that assigns connections per transaction. There statements are not prepared.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import asyncpg

from outlast.errors import StoreClosed, TimedOut
from outlast.stores.postgres import schema
from outlast.stores.postgres.connection import (
    CLOSE_TIMEOUT_S,
    Connection,
    ConnectionSource,
    Location,
    OwnConnection,
    OwnPool,
    PooledStepConnection,
    StepConnection,
    StepPool,
    UserConnection,
    UserPool,
    display_name,
)
from outlast.stores.postgres.driver_errors import is_lost, translate
from outlast.stores.postgres.liveness import MAX_OWNERS, Liveness
from outlast.stores.postgres.notifier import PostgresNotifier
from outlast.stores.postgres.rows import Row
from outlast.stores.postgres.schema import Server, check_pool_size, queries_of, read_server

CONNECT_TIMEOUT_S = 30
POOL_SIZE = 10
STEP_CONNECTION_TIMEOUT_S = 30.0
"""How long the transaction of a step waits for a connection."""


class Database:
    """Opened by the first session, closed by the last."""

    def __init__(
        self,
        place: Location,
        *,
        schema: str = "outlast",
        prefix: str = "",
        pool_size: int = POOL_SIZE,
        step_pool_size: int = POOL_SIZE,
        notify: bool = True,
        known_server: Server | None = None,
    ) -> None:
        self.queries = queries_of(schema, prefix)
        self.notifier = PostgresNotifier(schema, prefix)
        self.liveness = Liveness(self.queries)
        self._notify = notify
        self._place = place
        self.where = f"{display_name(place)} schema {schema!r}"
        self._size = check_pool_size(pool_size)
        self._step_size = check_pool_size(step_pool_size, "step_pool_size")
        self._sessions: set[object] = set()
        self._opening = asyncio.Lock()
        self._main: ConnectionSource | None = None
        self._urgent: ConnectionSource | None = None
        self._steps: ConnectionSource | None = None
        self._pid = 0
        self._known_server = known_server
        self.server: Server | None = None
        self.was_open = False

    def __repr__(self) -> str:
        return f"Database({self.where})"

    @property
    def is_open(self) -> bool:
        """Whether a session has it open."""
        return self._main is not None

    @property
    def notify_address(self) -> tuple[str, str]:
        """The parameters of `notify`: the channel and the sender."""
        return self.notifier.channel, self.notifier.name

    def open_in_transaction(self, outer: Database) -> None:
        """Open on the user's connection, with what `outer` knows about the server."""
        self._main = self._urgent = self._steps = _source_of(self._place)
        self._sessions.add(outer)  # closing a queue does not end the user's transaction
        self._pid, self.was_open, self.server = os.getpid(), True, outer.server
        self.notifier.name = ""  # its wake-ups are for this process too

    def sibling(self) -> Database | None:
        """Another database object on the same tables, for the event loop of another thread; None if the
        connections are the user's, which belong to one loop."""
        if not isinstance(self._place, str):
            return None
        queries = self.queries
        return Database(
            self._place,
            schema=queries.schema,
            prefix=queries.prefix,
            pool_size=1,
            notify=False,
            known_server=self.server,
        )

    async def open(self, user: object) -> None:
        """Connect, unless another session has. Idempotent."""
        async with self._opening:
            if self._main is None:
                try:
                    await self._connect()
                except (Exception, asyncio.CancelledError) as error:
                    await self._disconnect()
                    foreign = translate(error, self.where, sent=False, writes=False)
                    if foreign is not None:
                        raise foreign from error
                    raise
            self._sessions.add(user)
            self.was_open = True

    def describe(self) -> dict[str, object]:
        """Facts for operators."""
        server = self.server
        if server is None:
            raise StoreClosed(f"the store at {self.where} was never opened: open it first")
        return {
            "place": self.where,
            "postgres_version": server.version,
            "pooled": server.pooled,
            "fsync": server.fsync,
            "synchronous_commit": server.synchronous_commit,
            "full_page_writes": server.full_page_writes,
            "synchronous_standby_names": server.standbys,
            "durability": server.durability.name.lower(),
            "schema_version": schema.latest(),
            "listening": self.notifier.is_listening,
            "warnings": server.warnings,
        }

    async def close(self, user: object) -> None:
        """Leave; the last session disconnects."""
        self._sessions.discard(user)
        if not self._sessions:
            await self._disconnect()

    async def _connect(self) -> None:
        if isinstance(self._place, str):
            await self._inspect_first(self._place)
            self._main = OwnPool(await self._pool(self._size, OwnConnection))
            self._urgent = OwnPool(await self._pool(1, OwnConnection))
            kind = PooledStepConnection if self._is_pooled else StepConnection
            self._steps = StepPool(await self._pool(self._step_size, kind))
        else:
            source = _source_of(self._place)
            async with source.acquire(CONNECT_TIMEOUT_S) as connection:
                await self._inspect(connection)
            self._main = self._urgent = self._steps = source
        self._pid = os.getpid()
        if self._notify and isinstance(self._place, str) and not self._is_pooled:
            self.liveness.start(self._end_leases, self.notifier.wake)
            self.notifier.start(self._place, self._notify_others, self.liveness)
        elif self._notify and isinstance(self._place, ConnectionSource):
            self.notifier.pass_on(self._notify_others)

    @property
    def _is_inherited(self) -> bool:
        """Whether the parent process opened it before a fork."""
        return self._main is not None and self._pid != os.getpid()

    @property
    def _is_pooled(self) -> bool:
        return self.server is None or self.server.pooled

    def owners_to_lock(self, owners: Collection[str]) -> list[str] | None:
        """Owners whose advisory lock a statement takes on its connection; None where the sessions belong to
        the user or to a pooler."""
        if self._is_pooled or not isinstance(self._place, str):
            return None
        return sorted(owners)[:MAX_OWNERS]

    async def _notify_others(self, message: str) -> None:
        await self.fetch("notify", self.notifier.channel, message, timeout=CLOSE_TIMEOUT_S)

    async def _end_leases(self, grace: timedelta, settle: timedelta) -> list[Row]:
        return await self.fetch("end_leases", grace, settle, timeout=CLOSE_TIMEOUT_S)

    async def _inspect_first(self, url: str) -> None:
        """Inspect the server on a connection of its own: the result decides how the pools connect."""
        if self._known_server is not None:
            self.server = self._known_server
            return
        connection = await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S, statement_cache_size=0)
        try:
            await self._inspect(connection)
        finally:
            await connection.close(timeout=CLOSE_TIMEOUT_S)

    async def _inspect(self, connection: Connection) -> None:
        [row] = await connection.fetch(self.queries["describe_server"])
        self.server = read_server(row, connection.get_server_pid(), self.where)
        await schema.migrate(connection, self.queries, self.where)
        self.server.report(self.where)

    async def _pool(self, size: int, kind: type[Any]) -> Any:
        """A pool that connects on use. Steps have no statement cache: their session is reset."""
        cached = kind is OwnConnection and not self._is_pooled
        return await asyncpg.create_pool(
            self._place,
            min_size=0,
            max_size=size,
            timeout=CONNECT_TIMEOUT_S,
            statement_cache_size=200 if cached else 0,
            max_cached_statement_lifetime=0,
            connection_class=kind,
            server_settings={"application_name": "outlast"},
        )

    async def _disconnect(self) -> None:
        if self._is_inherited:
            # A connection that is closed or finalised here would leave the parent's event loop.
            _inherited.append((self._main, self._urgent, self._steps, self.liveness))
            self._main = self._urgent = self._steps = None
            self.liveness = Liveness(self.queries)
            self.notifier.abandon()
            return
        await self.liveness.stop()
        await self.notifier.stop()
        sources = {self._main, self._urgent, self._steps}
        self._main = self._urgent = self._steps = None
        # In parallel: each may wait for a server that does not answer.
        await asyncio.gather(*(source.close() for source in sources if source is not None))

    def acquire(self) -> AbstractAsyncContextManager[Any]:
        """A connection for a few statements of the store."""
        return self._source(urgent=False).acquire(None)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection with an open transaction, for a step. An error before that means that nothing was
        written."""
        self._source(urgent=False)  # open, and in this process
        assert self._steps is not None, "the database is open"
        async with AsyncExitStack() as ends:
            try:
                held = self._steps.hold(STEP_CONNECTION_TIMEOUT_S)
                connection = await ends.enter_async_context(held)
                await ends.enter_async_context(connection.transaction())
            except TimeoutError as error:
                raise TimedOut(
                    f"no connection to {self.where} became free for the transaction of a step in "
                    f"{STEP_CONNECTION_TIMEOUT_S:.0f} s; nothing was written. Raise step_pool_size, or "
                    "shorten the steps"
                ) from error
            except Exception as error:
                foreign = translate(error, self.where, sent=False, writes=False)
                if foreign is None:
                    raise
                raise foreign from error
            try:
                yield connection
            except BaseException:
                if isinstance(self._steps, StepPool) and self._is_pooled:
                    # A rollback undoes settings, but not session locks.
                    with suppress(Exception):
                        await connection.execute("SELECT pg_advisory_unlock_all()")
                raise

    async def script(self, name: str) -> None:
        """Run a named script of several statements, without parameters, on one connection."""
        try:
            async with self._source(urgent=False).acquire(None) as connection:
                await connection.execute(self.queries[name])
        except Exception as error:
            foreign = translate(error, self.where, sent=True, writes=True)
            if foreign is None:
                raise
            raise foreign from error

    @property
    def end_of_step(self) -> str:
        """The script that runs before the outcome of a step is recorded. The user's connection keeps its
        session state."""
        if not isinstance(self._place, str):
            return "check_constraints"
        return "end_pooled_step" if self._is_pooled else "end_step"

    async def fetch(
        self,
        name: str,
        *args: object,
        timeout: float | None,
        writes: bool = False,
        urgent: bool = False,
    ) -> list[Row]:
        """Run a named statement and return its rows; with `urgent` on the connection for renewals."""
        try:
            return await self._fetch(name, args, timeout, writes=writes, urgent=urgent)
        except _Lost as lost:
            if writes:
                raise lost.error from lost.cause
        # The connection may be a dead one of a server that was restarted since: a read is retried.
        try:
            return await self._fetch(name, args, timeout, writes=writes, urgent=urgent)
        except _Lost as lost:
            raise lost.error from lost.cause

    async def _fetch(
        self,
        name: str,
        args: tuple[object, ...],
        timeout: float | None,
        *,
        writes: bool,
        urgent: bool,
    ) -> list[Row]:
        sql, source = self.queries[name], self._source(urgent=urgent)
        deadline = None if timeout is None else time.monotonic() + timeout
        sent = False
        try:
            async with source.lend(timeout) as connection:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError
                sent = True
                rows: list[Row] = await connection.fetch(sql, *args, timeout=left)
                return rows
        except Exception as error:
            foreign = translate(error, self.where, sent=sent, writes=writes)
            if foreign is None:
                raise
            if is_lost(error):
                raise _Lost(foreign, error) from error
            raise foreign from error

    def _source(self, *, urgent: bool) -> ConnectionSource:
        source = self._urgent if urgent else self._main
        if source is None:
            raise StoreClosed(f"the store at {self.where} is closed: open it first")
        if self._is_inherited:
            raise StoreClosed(
                f"the store at {self.where} was opened before this process was forked, and "
                "connections do not survive a fork: open a new store in the child"
            )
        return source


_inherited: list[object] = []
"""Objects of the parent process in a forked child: never finalised."""


def _source_of(place: Location) -> ConnectionSource:
    if isinstance(place, ConnectionSource):
        return place
    return UserPool(place) if hasattr(place, "acquire") else UserConnection(place)


class _Lost(Exception):
    """The connection ended during a call: the error for the caller, and its cause."""

    def __init__(self, error: Exception, cause: Exception) -> None:
        super().__init__(str(error))
        self.error = error
        self.cause = cause
