"""BaseSession: one user of a database, from open to close. A store is one, its queue another.

Store and queue share one open database, which closes with the last of its sessions.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from outlast.errors import Closed


class SharedDatabase(Protocol):
    """A database that several sessions share."""

    @property
    def where(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether a session has it open now."""
        ...

    @property
    def was_open(self) -> bool:
        """Whether a session has ever opened it."""
        ...

    async def open(self, user: object) -> None:
        """Connect for `user`, unless that has happened."""
        ...

    async def close(self, user: object) -> None:
        """Disconnect if `user` is the last one."""
        ...


D = TypeVar("D", bound=SharedDatabase)


class BaseSession(Generic[D]):
    """Opens with the first call at the latest. A borrowed session is usable while another session
    has the database open; opened on its own, it keeps the database open too. Calls on a closed
    session raise `closed`."""

    def __init__(self, database: D, closed: type[Closed], *, borrowed: bool = False) -> None:
        self.database = database
        self._closed_error = closed
        self._borrowed = borrowed
        self._is_open = self._is_closed = False

    async def open(self) -> None:
        """Open the database. Opening an open session does nothing."""
        if not self._is_open:
            await self.database.open(self)
        self._is_open, self._is_closed = True, False

    async def close(self) -> None:
        """Leave the database. Closing twice is fine."""
        self._is_open, self._is_closed = False, True
        await self.database.close(self)

    async def make_ready(self) -> None:
        """Open the session if it never was; raise if it is closed."""
        if self._is_open:
            return
        if self._borrowed and self.database.is_open and not self._is_closed:
            return
        if self._is_closed or (self._borrowed and self.database.was_open):
            raise self._closed_error(
                f"{self.database.where} is closed: open it again, or close it later"
            )
        await self.open()
