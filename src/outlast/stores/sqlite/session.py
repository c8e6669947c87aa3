"""The use of a database by one store or queue, from open to close, and the base of the store's parts."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from outlast.errors import StoreClosed
from outlast.ports.clock import Clock, steady
from outlast.ports.port import Durability
from outlast.ports.store import Store
from outlast.stores._sql.session import BaseSession
from outlast.stores.sqlite.connection import Connect, Connection, Synchronous, connect
from outlast.stores.sqlite.connection_worker import Work
from outlast.stores.sqlite.database import Database
from outlast.stores.sqlite.notifier import SqliteNotifier
from outlast.stores.sqlite.wal import LOG_HARD_LIMIT_BYTES, LOG_LIMIT_BYTES

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
            connections = self.database.opened()
            worker = connections.reader if small else connections.searcher
            inline = small and self.database.inline
            return await worker.run(work, small=inline, timeout=timeout)
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
            writer = self.database.opened().writer
            return await writer.write(work, rows=rows, inline=self.database.inline, timeout=timeout)
        except StoreClosed as error:
            raise self._closed_error(str(error)) from error

    async def checkpoint(self, *, timeout: float | None) -> bool:
        """Copy the log into the file now; False if a reader held a part of it up."""
        await self.make_ready()
        return await self.database.opened().writer.checkpoint(timeout=timeout)

    async def register_owner(self, owner: str, clock: Clock, *, timeout: float | None) -> None:
        """Other processes detect a crash of this one as that of `owner` from now on."""
        liveness = self.database.liveness
        if not liveness.is_registered(owner, clock):
            await self.write(lambda db: liveness.register(db, owner, clock.now()), timeout=timeout)
            liveness.registered(owner)

    def check_file(self, connection: Connection) -> None:
        """Raise if the file is not the one that was opened, or was truncated."""
        self.database.opened().writer.check_file(connection)


class SessionStore(Store):
    """The constructor of the store, which all its parts share (claims.py, inbox.py, …)."""

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "full",
        inline: bool = True,
        network_storage: bool = False,
        log_limit: int = LOG_LIMIT_BYTES,
        log_hard_limit: int = LOG_HARD_LIMIT_BYTES,
        connect: Connect = connect,
        prefix: str = "",
    ) -> None:
        super().__init__(clock=steady(clock))
        database = Database(
            location,
            synchronous=synchronous,
            inline=inline,
            network_storage=network_storage,
            log_limit=log_limit,
            log_hard_limit=log_hard_limit,
            connect=connect,
            prefix=prefix,
        )
        # With "normal" a power loss may lose the last commits, but never damages the file.
        full = synchronous == "full"
        self.durability = Durability.POWER_LOSS if full else Durability.PROCESS_CRASH
        self._session = Session(database, StoreClosed)
        self.notifier = SqliteNotifier(database.foreign_version, database.liveness.has_dead)

    @property
    def database(self) -> Database:
        """The open file."""
        return self._session.database
