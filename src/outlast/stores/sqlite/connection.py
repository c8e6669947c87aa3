"""What we need of a database connection, and how we set one up.

The rest of this package runs SQL through `Connection` and nothing else of Python's sqlite3, so
that another build of SQLite (pysqlite3, apsw with a VFS that loses power) takes a few lines of
adapter: statements commit by themselves unless we say BEGIN, and `fetchall` is the only way to
read. There is no `fetchone` on purpose: a statement that is not read to its end stays open, and an
open statement keeps the log from being checkpointed.

Our tables beside those of others, in their file: each of our names gets a prefix.

The statements of this package name tables plainly, because in a file of our own nobody else does. In
a file of somebody else's a connection puts the prefix in, once for each statement: in front of tables
where SQL expects one, and of indexes and triggers where they are made, dropped or asked for.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, Protocol

from outlast.errors import InvalidValue
from outlast.stores._sql.sql_files import numbered_migrations

Parameters = Sequence[Any] | Mapping[str, Any]
Synchronous = Literal["full", "normal"]

CACHE_KIB = 2 * 1024
STATEMENTS = 512  # more than this package has, so that none is ever parsed twice


class Cursor(Protocol):
    """The answer to one statement."""

    def fetchall(self) -> list[Any]:
        """All rows, as tuples."""
        ...


class Statements(Protocol):
    """Where single statements can be run."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class Connection(Statements, Protocol):
    """A connection in autocommit mode that may be used by one thread at a time."""

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Run one statement for each set of parameters."""
        ...


Connect = Callable[[str], Connection]
"""Opens a connection to the file at a path."""


def connect(path: str) -> Connection:
    """A connection of Python's own sqlite3."""
    return sqlite3.connect(
        path,
        timeout=0,  # whoever waits for a lock does it in lane.py, where waiting can be given up
        isolation_level=None,  # we say BEGIN IMMEDIATE: a deferred one ignores every timeout
        check_same_thread=False,  # a mutex keeps threads apart
        cached_statements=STATEMENTS,
    )


def configure(
    connection: Connection,
    *,
    synchronous: Synchronous,
    log_limit: int,
    cache_kib: int = CACHE_KIB,
    trusted: bool = False,
) -> None:
    """Set what is not stored in the file. The caller has made sure that the file is ours, or, with
    `trusted`, an application's: its triggers may call functions then, as they may for itself."""
    for pragma in (
        f"synchronous = {synchronous}",
        "fullfsync = 1",  # macOS: fsync alone stops at the disk's own cache
        "checkpoint_fullfsync = 1",
        "wal_autocheckpoint = 0",  # see log.py
        f"journal_size_limit = {log_limit}",
        "mmap_size = 0",  # an I/O error in mapped memory is a signal, not an error
        f"cache_size = -{cache_kib}",
        "temp_store = memory",
        # A schema that was tampered with calls no functions.
        f"trusted_schema = {'on' if trusted else 'off'}",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()


def scalar(connection: Connection, sql: str, parameters: Parameters = ()) -> Any:
    """The first column of the first row, or None."""
    rows = connection.execute(sql, parameters).fetchall()
    return rows[0][0] if rows else None


PREFIX = "outlast_"
"""What a store is told that shares a file, unless it is told another."""

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,29}")


def check_prefix(prefix: str) -> str:
    """Refuse what is no beginning of a name."""
    if prefix and (not _IDENTIFIER.fullmatch(prefix) or prefix.startswith("sqlite_")):
        raise InvalidValue(
            f"prefix={prefix!r}: use lower-case letters, digits and '_', beginning with a letter, up "
            "to 30 characters, and not SQLite's own sqlite_"
        )
    return prefix


class PrefixedConnection:
    """A connection on which our statements mean our tables."""

    def __init__(self, connection: Connection, prefix: str) -> None:
        self.connection = connection
        self._prefix = prefix

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        """Run one statement."""
        return self.connection.execute(prefixed(sql, self._prefix), parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object:
        """Run one statement for each set of parameters."""
        return self.connection.executemany(prefixed(sql, self._prefix), parameters)

    def close(self) -> None:
        """Give it back."""
        self.connection.close()


@lru_cache(maxsize=2048)
def prefixed(sql: str, prefix: str) -> str:
    """A statement of ours with the prefix put in."""
    return _names().sub(prefix, sql)


@cache
def tables() -> tuple[str, ...]:
    """The names of our tables, without a prefix."""
    made: list[str] = ["migrations"]
    for migration in numbered_migrations("outlast.stores.sqlite"):
        made += re.findall(r"^CREATE TABLE (\w+)", migration.script, re.MULTILINE)
    return tuple(made)


@cache
def _names() -> re.Pattern[str]:
    table = "|".join(sorted(tables(), key=len, reverse=True))
    # Matches nothing, in front of a name: what was before it is looked at, and a look back has to know
    # how far, so each word has a branch of its own. Our statements have one space or a line's end there.
    before = "".join(
        rf"(?<=\b{word}\s)|" for word in ("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "ON")
    )
    return re.compile(
        rf"(?:{before.rstrip('|')})(?=(?:{table})\b)"
        rf"|(?<=,\s)(?=(?:{table})\sAS\b)"
        rf"|(?<![\w.:])(?=(?:{table})\.\w)"
        r"|(?:(?<=\bINDEX\s)|(?<=\bTRIGGER\s)|(?<=\bINDEXED\sBY\s))(?=\w)"
    )
