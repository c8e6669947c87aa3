"""Our tables beside those of others, in their file: each of our names gets a prefix.

The statements of this package name tables plainly, because in a file of our own nobody else does. In
a file of somebody else's a connection puts the prefix in, once for each statement: in front of tables
where SQL expects one, and of indexes and triggers where they are made or dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from outlast.errors import InvalidValue
from outlast.stores.sqlite.connection import Connection, Cursor

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
def _names() -> re.Pattern[str]:
    made: list[str] = ["migrations"]
    for file in files("outlast.stores.sqlite").joinpath("migrations").iterdir():
        made += re.findall(r"^CREATE TABLE (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    table = "|".join(sorted(made, key=len, reverse=True))
    # Matches nothing, in front of a name: what was before it is looked at, and a look back has to know
    # how far, so each word has a branch of its own. Our statements have one space or a line's end there.
    before = "".join(
        rf"(?<=\b{word}\s)|" for word in ("FROM", "JOIN", "INTO", "UPDATE", "TABLE", "ON")
    )
    return re.compile(
        rf"(?:{before.rstrip('|')})(?=(?:{table})\b)"
        rf"|(?<=,\s)(?=(?:{table})\sAS\b)"
        rf"|(?<![\w.:])(?=(?:{table})\.\w)"
        r"|(?:(?<=\bINDEX\s)|(?<=\bTRIGGER\s))(?=\w)"
    )
