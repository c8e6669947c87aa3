"""Session: a store's or a queue's reads and writes on the database that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from outlast.errors import StoreClosed
from outlast.stores._sql.session import BaseSession
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.database import Database

T = TypeVar("T")

MAX_INLINE_ROWS = 200
"""Rows that a read in the event loop may return: half a millisecond's worth."""


class Session(BaseSession[Database]):
    """Runs functions on the database: each gets a connection and returns what it found."""

    async def read(self, work: Work[T], *, timeout: float | None, small: bool = True) -> T:
        """Run a function that reads. `small`: it reads a few rows, by an index."""
        if not self._is_open:
            await self.make_ready()
        try:
            return await self.database.read(work, small=small, timeout=timeout)
        except StoreClosed as error:
            raise self._closed_error(str(error)) from error

    async def read_page(
        self, work: Callable[[Connection, int], list[T]], *, limit: int, timeout: float | None
    ) -> list[T]:
        """Read up to `limit` rows. Most pages are short: only a long one leaves the event loop."""
        few = min(limit, MAX_INLINE_ROWS)
        found = await self.read(lambda db: work(db, few), timeout=timeout)
        if len(found) < few or few == limit:
            return found
        return await self.read(lambda db: work(db, limit), timeout=timeout, small=False)

    async def write(self, work: Work[T], *, timeout: float | None, rows: int = 1) -> T:
        """Run a function that writes about `rows` rows, in one transaction."""
        if not self._is_open:
            await self.make_ready()
        try:
            return await self.database.write(work, rows=rows, timeout=timeout)
        except StoreClosed as error:
            raise self._closed_error(str(error)) from error

    async def checkpoint(self, *, timeout: float | None) -> bool:
        """Copy the log into the file now; False if a reader held a part of it up."""
        await self.make_ready()
        return await self.database.checkpoint(timeout=timeout)

    def check_file(self, connection: Connection) -> None:
        """Raise if the file is not the one that was opened, or was truncated."""
        self.database.check_file(connection)
