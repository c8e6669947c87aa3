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
from outlast.stores.postgres.connection import Location
from outlast.stores.postgres.database import POOL_SIZE, Database
from outlast.stores.postgres.rows import Row

MICROSECOND = timedelta(microseconds=1)


class Session:
    """Opens at the first call at the latest. With `shared` it also works while another session has the
    database open."""

    def __init__(
        self,
        database: Database,
        closed: type[Closed],
        *,
        clock: Clock | None,
        shared: bool = False,
    ) -> None:
        self.database = database
        self.clock = clock
        self.shift = timedelta()
        self._error = closed
        self._shared = shared
        self._is_open = self._is_closed = False

    async def open(self) -> None:
        """Open the database. Opening an open session does nothing."""
        if not self._is_open:
            await self.database.open(self)
        self._is_open, self._is_closed = True, False

    async def close(self) -> None:
        """Leave the database; later calls raise. Idempotent."""
        self._is_open, self._is_closed = False, True
        await self.database.close(self)

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
        await self.ensure_open()
        try:
            return await self.database.fetch(
                name, *args, timeout=timeout, writes=writes, urgent=urgent
            )
        except StoreClosed as error:
            raise self._error(str(error)) from error

    async def register_owner(self, owner: str) -> None:
        """Let other processes detect a crash of this one as that of `owner`, where that is possible."""
        await self.ensure_open()
        await self.database.liveness.register(owner)

    async def ensure_open(self) -> None:
        """Open it if it never was; raise if it is closed."""
        if self._is_open:
            return
        if self._shared and self.database.is_open and not self._is_closed:
            return
        if self._is_closed or (self._shared and self.database.was_open):
            raise self._error(f"{self.database.where} is closed: open it again, or close it later")
        await self.open()


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
        shared = isinstance(place, Database)
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
        self._session = Session(place, StoreClosed, clock=lease_clock(clock), shared=shared)

    @property
    def database(self) -> Database:
        """The database that its statements go to."""
        return self._session.database


def lease_clock(clock: Clock | None) -> Clock | None:
    """The clock for leases and timers, or None for the server's. The system clock of one machine among
    many is not used."""
    return None if isinstance(clock, SystemClock) else clock
