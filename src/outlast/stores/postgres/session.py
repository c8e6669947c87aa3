"""Session: one user's hold on a database, from open to close. A store is one, a queue another.

It also knows the time: the server's, unless a clock was given, as tests do; and `shift`, by which
tests move the server's.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from outlast.errors import Closed, StoreClosed
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock
from outlast.stores.postgres.database import Database
from outlast.stores.postgres.rows import Row

MICROSECOND = timedelta(microseconds=1)


class Session:
    """Opens at the first call at the latest. A borrowed one lives as long as the database is open
    for others, unless it is opened on its own."""

    def __init__(
        self,
        database: Database,
        closed: type[Closed],
        *,
        clock: Clock | None,
        borrowed: bool = False,
    ) -> None:
        self.database = database
        self.clock = clock
        self.shift = timedelta()
        self._error = closed
        self._borrowed = borrowed
        self._is_open = self._is_closed = False

    async def open(self) -> None:
        """Open the database. Opening an open session does nothing."""
        if not self._is_open:
            await self.database.open(self)
        self._is_open, self._is_closed = True, False

    async def close(self) -> None:
        """Leave the database; calls after this raise. Closing twice is fine."""
        self._is_open, self._is_closed = False, True
        await self.database.close(self)

    @property
    def time(self) -> tuple[int | None, int]:
        """The first two parameters of what needs the time: the time itself, or None for the
        server's, and how far that is moved."""
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
        """Run a statement that writes: one, and so all or nothing."""
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
            raise self._error(str(error)) from error

    async def hold(self, owner: str) -> None:
        """Let the death of this process be seen as the death of `owner`, where that can be."""
        await self.make_ready()
        await self.database.owners.hold(owner)

    async def make_ready(self) -> None:
        """Open it if it never was; an error if it is closed."""
        if self._is_open:
            return
        if self._borrowed and self.database.is_open and not self._is_closed:
            return
        if self._is_closed or (self._borrowed and self.database.was_open):
            raise self._error(f"{self.database.where} is closed: open it again, or close it later")
        await self.open()
