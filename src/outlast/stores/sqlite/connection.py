"""A SQLite connection: the protocol that this package uses, how one is set up, and table prefixes.

The rest of the package runs SQL through `Connection` and nothing else of Python's sqlite3, so that
another build of SQLite (pysqlite3, apsw with a VFS that loses power) needs only a small adapter:
statements commit by themselves unless we say BEGIN, and `fetchall` is the only way to read. There is
no `fetchone` on purpose: a statement that is not read to its end stays open, and an open statement
keeps the log from being checkpointed.

Statements name tables plainly. In the file of an application, `PrefixedConnection` adds the prefix,
once for each statement: to tables where SQL expects one, and to indexes and triggers where they are
created, dropped or named.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, Protocol

from outlast.errors import InvalidValue
from outlast.stores._sql.session import numbered_migrations

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
        """Close it."""
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
        timeout=0,  # connection_worker.py waits for locks, and can stop waiting
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
    """Set what is not stored in the file. With `trusted` the file is an application's, whose triggers
    may call functions."""
    for pragma in (
        f"synchronous = {synchronous}",
        "fullfsync = 1",  # macOS: fsync alone stops at the disk's own cache
        "checkpoint_fullfsync = 1",
        "wal_autocheckpoint = 0",  # see wal.py
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
"""The default prefix of a store in the file of an application."""

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,29}")


def check_prefix(prefix: str) -> str:
    """Raise if `prefix` cannot begin a name."""
    if prefix and (not _IDENTIFIER.fullmatch(prefix) or prefix.startswith("sqlite_")):
        raise InvalidValue(
            f"prefix={prefix!r}: use lower-case letters, digits and '_', beginning with a letter, up "
            "to 30 characters, and not SQLite's own sqlite_"
        )
    return prefix


class PrefixedConnection:
    """A connection that adds the prefix to the tables of each statement."""

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
        """Close the connection."""
        self.connection.close()


@lru_cache(maxsize=2048)
def prefixed(sql: str, prefix: str) -> str:
    """A statement with the prefix added."""
    return _names().sub(prefix, sql)


@cache
def tables() -> tuple[str, ...]:
    """The names of the tables, without a prefix."""
    made: list[str] = ["migrations"]
    for migration in numbered_migrations("outlast.stores.sqlite"):
        made += re.findall(r"^CREATE TABLE (\w+)", migration.script, re.MULTILINE)
    return tuple(made)


@cache
def _names() -> re.Pattern[str]:
    table = "|".join(sorted(tables(), key=len, reverse=True))
    # Matches the empty text in front of a name. A lookbehind has a fixed width, so each word has a
    # branch of its own; statements have one space or line end there.
    before = "".join(
        rf"(?<=\b{word}\s)|" for word in ("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "ON")
    )
    return re.compile(
        rf"(?:{before.rstrip('|')})(?=(?:{table})\b)"
        rf"|(?<=,\s)(?=(?:{table})\sAS\b)"
        rf"|(?<![\w.:])(?=(?:{table})\.\w)"
        r"|(?:(?<=\bINDEX\s)|(?<=\bTRIGGER\s)|(?<=\bINDEXED\sBY\s))(?=\w)"
    )
