"""SQL by name, with the names of one store's tables put in.

In the files `@name` stands for the qualified name of a table or function and `#name` for a bare one
(of an index, which lives in the schema of its table). Names come from the constructor, so they are
checked strictly and quoted all the same.

The tables and how they came to be: numbered files in migrations/, applied in order, never back.

The table `migrations` says which have been. All that are missing are applied in one transaction,
under a lock that lasts as long as the transaction, so that it works behind a pooler too; whoever
comes second waits, looks again and finds nothing left to do. Steps only add: processes that run an
older outlast go on working on the same tables.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from outlast.errors import InvalidValue, SchemaTooNew
from outlast.stores.postgres.connection import Link

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


class Migration(NamedTuple):
    """One step: its number, and its statements."""

    version: int
    script: str


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps, in order."""
    found = []
    for file in files("outlast.stores.postgres").joinpath("migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql"):
            found.append(Migration(int(number), file.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def latest() -> int:
    """The version that this outlast writes."""
    return migrations()[-1].version


async def version_of(connection: Link, queries: Queries, where: str) -> int:
    """The version of the tables: 0 if there are none. Refuses what is newer than us."""
    [[exists]] = await connection.fetch(queries["has_migrations"])
    if not exists:
        return 0
    [[version]] = await connection.fetch(queries["read_version"])
    version = version or 0
    if version > latest():
        raise SchemaTooNew(
            f"{where} has schema version {version}, and this outlast knows {latest()}: a newer one "
            "has written it. Upgrade outlast in this process"
        )
    return int(version)


async def migrate(connection: Link, queries: Queries, where: str) -> None:
    """Bring the tables up to date, waiting for others who do the same."""
    if await version_of(connection, queries, where) == latest():
        return
    async with connection.transaction():
        await connection.fetch(queries["lock_migrations"])
        [[exists]] = await connection.fetch(queries["has_schema"], queries.schema)
        if not exists:
            await connection.execute(f'CREATE SCHEMA "{queries.schema}"')
        version = await version_of(connection, queries, where)
        for migration in migrations():
            if migration.version > version:
                await connection.execute(queries.render(migration.script))
                await connection.fetch(queries["write_version"], migration.version)
