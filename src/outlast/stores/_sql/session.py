"""BaseSession: one user of a database, from open to close. A store is one, its queue another.

Store and queue share one open database, which closes with the last of its sessions.

SQL in files: statements by name, and numbered migrations that are applied in order, never back.

`statements/*.sql` of a store holds its statements, each under a line ``-- name: …``; the text before the
first name says what the file is about. `migrations/NNNN_name.sql` changes the tables. A migration
only adds, so that processes with an older outlast keep working on the same tables.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Generic, NamedTuple, Protocol, TypeVar

from outlast.errors import Closed, SchemaTooNew


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


_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Migration(NamedTuple):
    """One numbered change of the tables."""

    version: int
    script: str


@cache
def named_statements(package: str) -> dict[str, str]:
    """The statements in the folder `statements` of a package, by name."""
    found: dict[str, str] = {}
    for file in files(package).joinpath("statements").iterdir():
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found


@cache
def numbered_migrations(package: str) -> tuple[Migration, ...]:
    """The files in the folder `migrations` of a package, in order."""
    found = []
    for file in files(package).joinpath("migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql"):
            found.append(Migration(int(number), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def check_version(where: object, version: int, latest: int) -> int:
    """The version of a schema; `SchemaTooNew` if it is later than the `latest` of this outlast."""
    if version > latest:
        raise SchemaTooNew(
            f"{where} has schema version {version}, and this outlast knows {latest}: a newer "
            "outlast has written it. Upgrade outlast in this process"
        )
    return version
