"""SQL by name, with the names of one store's tables put in.

In the files `@name` stands for the qualified name of a table or function and `#name` for a bare one
(of an index, which lives in the schema of its table). Names come from the constructor, so they are
checked strictly and quoted all the same.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from outlast.errors import InvalidValue

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_MARK = re.compile(r"(?<![\w@#])([@#])([a-z]\w*)")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")

MAX_SCHEMA, MAX_PREFIX = 63, 30
"""Bytes. PostgreSQL cuts longer names in silence; ours add up to 25 to the prefix."""


class Queries:
    """The statements of one store."""

    def __init__(self, schema: str, prefix: str) -> None:
        self.schema = _checked(schema, "schema", MAX_SCHEMA)
        self.prefix = _checked(prefix, "prefix", MAX_PREFIX) if prefix else ""
        self._rendered = {name: self.render(sql) for name, sql in _statements().items()}

    def __getitem__(self, name: str) -> str:
        return self._rendered[name]

    def render(self, sql: str) -> str:
        """A text of ours with names put in."""
        return _MARK.sub(lambda mark: self._named(*mark.groups()), sql)

    def _named(self, mark: str, name: str) -> str:
        bare = f'"{self.prefix}{name}"'
        return f'"{self.schema}".{bare}' if mark == "@" else bare


@cache
def queries_of(schema: str, prefix: str) -> Queries:
    """The statements of a store, made once."""
    return Queries(schema, prefix)


def _checked(name: str, what: str, limit: int) -> str:
    if not _IDENTIFIER.fullmatch(name) or len(name) > limit:
        raise InvalidValue(
            f"{what}={name!r}: use lower-case letters, digits and '_', beginning with a letter, "
            f"up to {limit} characters"
        )
    if what == "schema" and name.startswith("pg_"):
        raise InvalidValue(f"schema={name!r}: names that begin with pg_ are PostgreSQL's own")
    return name


@cache
def _statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files("outlast.stores.postgres").joinpath("sql").iterdir():
        # Before the first name stands what the file is about.
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found
