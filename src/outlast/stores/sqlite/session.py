"""Session: one user's hold on a database, from open to close. A store is one, a queue another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from outlast.errors import Closed, StoreClosed
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.database import Database

T = TypeVar("T")

FEW = 200
"""Rows that a read in the event loop may return: half a millisecond's worth."""


class Session:
    """Opens at the first call at the latest. A borrowed one lives as long as the database is open
    for others, unless it is opened on its own."""

    def __init__(self, database: Database, closed: type[Closed], *, borrowed: bool = False) -> None:
        self.database = database
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

    async def read(self, work: Work[T], *, timeout: float | None, small: bool = True) -> T:
        """Read a row, or a few; with ``small=False`` nobody knows how many."""
        if not self._is_open:
            await self._make_ready()
        try:
            return await self.database.read(work, small=small, timeout=timeout)
        except StoreClosed as error:
            raise self._error(str(error)) from error

    async def read_page(
        self, work: Callable[[Connection, int], list[T]], *, limit: int, timeout: float | None
    ) -> list[T]:
        """Read up to `limit` rows, most often few: out of the loop only if there are more."""
        few = min(limit, FEW)
        found = await self.read(lambda db: work(db, few), timeout=timeout)
        if len(found) < few or few == limit:
            return found
        return await self.read(lambda db: work(db, limit), timeout=timeout, small=False)

    async def write(self, work: Work[T], *, timeout: float | None, rows: int = 1) -> T:
        """Write about so many rows, in one transaction."""
        if not self._is_open:
            await self._make_ready()
        try:
            return await self.database.write(work, rows=rows, timeout=timeout)
        except StoreClosed as error:
            raise self._error(str(error)) from error

    async def checkpoint(self, *, timeout: float | None) -> bool:
        """Copy the log into the file (a checkpoint) now; whether no reader held that up."""
        if not self._is_open:
            await self._make_ready()
        return await self.database.checkpoint(timeout=timeout)

    def check_file(self, connection: Connection) -> None:
        """Refuse to go on if the file is not the one that was opened, or not whole any more."""
        self.database.check_file(connection)

    async def _make_ready(self) -> None:
        if self._borrowed and self.database.is_open and not self._is_closed:
            return
        if self._is_closed or (self._borrowed and self.database.was_open):
            raise self._error(f"{self.database.path} is closed: open it again, or close it later")
        await self.open()
