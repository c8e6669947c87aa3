"""The use of a database by one store or queue, from open to close, and the base of the store's parts.

A `Session` opens the database at the first call. It also has the time: the server's, unless a clock was
passed, as tests do; tests move the server's time by `shift`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from outlast.errors import Closed, StoreClosed
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock, ServerClock, SystemClock
from outlast.ports.notifier import Notifier
from outlast.ports.store import Store
from outlast.stores._sql.session import BaseSession
from outlast.stores.postgres.connection import Location
from outlast.stores.postgres.database import POOL_SIZE, Database
from outlast.stores.postgres.rows import Row

MICROSECOND = timedelta(microseconds=1)


class Session(BaseSession[Database]):
    """Statements of one store or queue."""

    def __init__(
        self,
        database: Database,
        closed: type[Closed],
        *,
        clock: Clock | None,
        borrowed: bool = False,
    ) -> None:
        super().__init__(database, closed, borrowed=borrowed)
        self.clock = clock
        self.shift = timedelta()

    @property
    def time(self) -> tuple[int | None, int]:
        """The parameters `at` and `shift` of functions that need the time; None is the server's."""
        at = None if self.clock is None else to_micros(self.clock.now())
        return at, self.shift // MICROSECOND

    async def now(self, *, timeout: float | None) -> datetime:
        """The store's time."""
        ((now,),) = await self.read("now", *self.time, timeout=timeout)
        return from_micros(now)

    async def read(self, name: str, *args: object, timeout: float | None) -> list[Row]:
        """Run a statement that only reads."""
        return await self._fetch(name, args, timeout, writes=False, urgent=False)

    async def write(
        self, name: str, *args: object, timeout: float | None, urgent: bool = False
    ) -> list[Row]:
        """Run a statement that writes: one transaction."""
        return await self._fetch(name, args, timeout, writes=True, urgent=urgent)

    async def _fetch(
        self,
        name: str,
        args: tuple[object, ...],
        timeout: float | None,
        *,
        writes: bool,
        urgent: bool,
    ) -> list[Row]:
        await self.make_ready()
        try:
            return await self.database.fetch(
                name, *args, timeout=timeout, writes=writes, urgent=urgent
            )
        except StoreClosed as error:
            raise self._closed_error(str(error)) from error

    async def register_owner(self, owner: str) -> None:
        """Let other processes detect a crash of this one as that of `owner`, where that is possible."""
        await self.make_ready()
        await self.database.liveness.register(owner)


class SessionStore(Store):
    """The constructor of the store, which all its parts share (claims.py, inbox.py, …)."""

    def __init__(
        self,
        place: Location | Database,
        *,
        schema: str = "outlast",
        prefix: str = "",
        pool_size: int = POOL_SIZE,
        step_pool_size: int = POOL_SIZE,
        notify: bool = True,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(clock=clock or ServerClock())
        borrowed = isinstance(place, Database)
        if not isinstance(place, Database):
            place = Database(
                place,
                schema=schema,
                prefix=prefix,
                pool_size=pool_size,
                step_pool_size=step_pool_size,
                notify=notify,
            )
        self.notifier: Notifier = place.notifier
        self._session = Session(place, StoreClosed, clock=lease_clock(clock), borrowed=borrowed)

    @property
    def database(self) -> Database:
        """The database that its statements go to."""
        return self._session.database


def lease_clock(clock: Clock | None) -> Clock | None:
    """The clock for leases and timers, or None for the server's. The system clock of one machine among
    many is not used."""
    return None if isinstance(clock, SystemClock) else clock
