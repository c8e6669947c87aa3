"""Database: the connections of a store and its queues, and the calls that go through them.

With a URL there is a pool of our own, a second one with a single connection for renewals, because a
worker that has all connections busy must not lose its leases, and a third one for transactions of
steps, which may last. With a pool, a connection or a `Source` of the user's, everything goes through
that, and it is never closed here.

A call is one statement. Nothing is left in a session, so any connection will do, also one that a
pooler hands out per transaction; there statements are not prepared under a name.
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
    CLOSE_SECONDS,
    Link,
    OneSource,
    OwnConnection,
    OwnPool,
    Place,
    PooledStepConnection,
    PoolSource,
    Source,
    StepConnection,
    StepPool,
    shown,
)
from outlast.stores.postgres.driver_errors import is_lost, translate
from outlast.stores.postgres.liveness import MOST, Owners
from outlast.stores.postgres.notifier import PostgresNotifier
from outlast.stores.postgres.rows import Row
from outlast.stores.postgres.schema import queries_of
from outlast.stores.postgres.server import Server, check_pool_size, read_server

CONNECT_SECONDS = 30
POOL_SIZE = 10
STEP_WAIT_SECONDS = 30.0
"""How long a transaction of a step waits for a connection before it says so."""


class Database:
    """Statements for all who share it in this process."""

    def __init__(
        self,
        place: Place,
        *,
        schema: str = "outlast",
        prefix: str = "",
        pool_size: int = POOL_SIZE,
        step_pool_size: int = POOL_SIZE,
        notify: bool = True,
        known: Server | None = None,
    ) -> None:
        self.queries = queries_of(schema, prefix)
        self.notifier = PostgresNotifier(schema, prefix)
        self.owners = Owners(self.queries)
        self._notify = notify
        self._place = place
        self.where = f"{shown(place)} schema {schema!r}"
        self._size = check_pool_size(pool_size)
        self._step_size = check_pool_size(step_pool_size, "step_pool_size")
        self._users: set[object] = set()
        self._opening = asyncio.Lock()
        self._main: Source | None = None
        self._urgent: Source | None = None
        self._steps: Source | None = None
        self._pid = 0
        self._known = known
        self.server: Server | None = None
        self.was_open = False

    def __repr__(self) -> str:
        return f"Database({self.where})"

    # -- life ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether somebody has opened it and not closed it again."""
        return self._main is not None

    @property
    def notify_address(self) -> tuple[str, str]:
        """The parameters of `notify`: the channel, and who sends a wake-up."""
        return self.notifier.channel, self.notifier.name

    def borrow(self, lender: Database) -> None:
        """Be open on a connection of the user's, with what a database of ours knows already."""
        self._main = self._urgent = self._steps = _source_of(self._place)
        self._users.add(lender)  # a queue that is closed does not end the user's transaction
        self._pid, self.was_open, self.server = os.getpid(), True, lender.server
        self.notifier.name = ""  # its wake-ups are for our own process too

    def sibling(self) -> Database | None:
        """Another one on the same tables, for the loop of another thread; None if the connections
        are the user's, which belong to one loop."""
        if not isinstance(self._place, str):
            return None
        queries = self.queries
        return Database(
            self._place,
            schema=queries.schema,
            prefix=queries.prefix,
            pool_size=1,
            notify=False,
            known=self.server,
        )

    async def open(self, user: object) -> None:
        """Connect, or join those who have. Joining twice is joining once."""
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
            self._users.add(user)
            self.was_open = True

    def describe(self) -> dict[str, object]:
        """What an operator wants to know."""
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
        """Leave; the last one disconnects."""
        self._users.discard(user)
        if not self._users:
            await self._disconnect()

    async def _connect(self) -> None:
        if isinstance(self._place, str):
            await self._look_first(self._place)
            self._main = OwnPool(await self._pool(self._size, OwnConnection))
            self._urgent = OwnPool(await self._pool(1, OwnConnection))
            kind = PooledStepConnection if self._is_pooled else StepConnection
            self._steps = StepPool(await self._pool(self._step_size, kind))
        else:
            source = _source_of(self._place)
            async with source.acquire(CONNECT_SECONDS) as connection:
                await self._look(connection)
            self._main = self._urgent = self._steps = source
        self._pid = os.getpid()
        if self._notify and isinstance(self._place, str) and not self._is_pooled:
            self.owners.start(self._end_leases, self.notifier.wake)
            self.notifier.start(self._place, self._notify_others, self.owners)
        elif self._notify and isinstance(self._place, Source):
            self.notifier.pass_on(self._notify_others)

    @property
    def _is_inherited(self) -> bool:
        """Whether it was opened by the process that has forked this one."""
        return self._main is not None and self._pid != os.getpid()

    @property
    def _is_pooled(self) -> bool:
        return self.server is None or self.server.pooled

    def living(self, owners: Collection[str]) -> list[str] | None:
        """The owners that a session may say of that they live as long as it does; None where sessions
        are the user's, or a pooler's."""
        if self._is_pooled or not isinstance(self._place, str):
            return None
        return sorted(owners)[:MOST]

    async def _notify_others(self, message: str) -> None:
        await self.fetch("notify", self.notifier.channel, message, timeout=CLOSE_SECONDS)

    async def _end_leases(self, grace: timedelta, settle: timedelta) -> list[Row]:
        return await self.fetch("end_leases", grace, settle, timeout=CLOSE_SECONDS)

    async def _look_first(self, url: str) -> None:
        """What one connection finds decides how the others are made. A sibling has been told."""
        if self._known is not None:
            self.server = self._known
            return
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS, statement_cache_size=0)
        try:
            await self._look(connection)
        finally:
            await connection.close(timeout=CLOSE_SECONDS)

    async def _look(self, connection: Link) -> None:
        [row] = await connection.fetch(self.queries["describe_server"])
        self.server = read_server(row, connection.get_server_pid(), self.where)
        await schema.migrate(connection, self.queries, self.where)
        self.server.report(self.where)

    async def _pool(self, size: int, kind: type[Any]) -> Any:
        """A pool that connects when it is used. What a step has prepared ends with the step."""
        cached = kind is OwnConnection and not self._is_pooled
        return await asyncpg.create_pool(
            self._place,
            min_size=0,
            max_size=size,
            timeout=CONNECT_SECONDS,
            statement_cache_size=200 if cached else 0,
            max_cached_statement_lifetime=0,
            connection_class=kind,
            server_settings={"application_name": "outlast"},
        )

    async def _disconnect(self) -> None:
        if self._is_inherited:
            # A connection that is closed, or finalised, here would leave the parent's event loop.
            _inherited.append((self._main, self._urgent, self._steps, self.owners))
            self._main = self._urgent = self._steps = None
            self.owners = Owners(self.queries)
            self.notifier.abandon()
            return
        await self.owners.stop()
        await self.notifier.stop()
        sources = {self._main, self._urgent, self._steps}
        self._main = self._urgent = self._steps = None
        # Together: each waits for a server that does not answer.
        await asyncio.gather(*(source.close() for source in sources if source is not None))

    # -- calls --------------------------------------------------------------------------------

    def acquire(self) -> AbstractAsyncContextManager[Any]:
        """A connection for a few statements of ours."""
        return self._source(urgent=False).acquire(None)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A connection on which a transaction has begun, for a step. Errors up to there say that
        nothing was written."""
        self._source(urgent=False)  # open, and in this process
        assert self._steps is not None, "it is open"
        async with AsyncExitStack() as ends:
            try:
                held = self._steps.hold(STEP_WAIT_SECONDS)
                connection = await ends.enter_async_context(held)
                await ends.enter_async_context(connection.transaction())
            except TimeoutError as error:
                raise TimedOut(
                    f"no connection to {self.where} was free for the transaction of a step in "
                    f"{STEP_WAIT_SECONDS:.0f} s, nothing was written: raise step_pool_size, or let "
                    "steps be shorter"
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
                    # A rollback undoes settings and no locks of the session.
                    with suppress(Exception):
                        await connection.execute("SELECT pg_advisory_unlock_all()")
                raise

    async def script(self, name: str) -> None:
        """Run several statements of ours, without parameters, on one connection."""
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
        """The statements that end a step's own before its outcome is recorded. A connection of the
        user's keeps what the user has set there."""
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
        """Run a statement of ours and give its rows. With `urgent`, past all others."""
        try:
            return await self._fetch(name, args, timeout, writes=writes, urgent=urgent)
        except _Lost as lost:
            if writes:
                raise lost.told from lost.cause
        # The connection may have ended long ago, with the server that was restarted since: whoever
        # reads can simply ask again.
        try:
            return await self._fetch(name, args, timeout, writes=writes, urgent=urgent)
        except _Lost as lost:
            raise lost.told from lost.cause

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

    def _source(self, *, urgent: bool) -> Source:
        source = self._urgent if urgent else self._main
        if source is None:
            raise StoreClosed(f"the store at {self.where} is closed: open it first")
        if self._is_inherited:
            raise StoreClosed(
                f"the store at {self.where} was opened before this process was forked, and "
                "connections do not survive that: open a new store after the fork"
            )
        return source


_inherited: list[object] = []
"""What forked children have of their parents': kept, and never touched."""


def _source_of(place: Place) -> Source:
    if isinstance(place, Source):
        return place
    return PoolSource(place) if hasattr(place, "acquire") else OneSource(place)


class _Lost(Exception):
    """A connection ended under a call; what to tell, and why."""

    def __init__(self, told: Exception, cause: Exception) -> None:
        super().__init__(str(told))
        self.told = told
        self.cause = cause
