"""Tables, functions and named statements of a store, and how a database gets them.

::

    migrations/NNNN_x.sql    tables, indexes, views, triggers: numbered, each applied once
    functions/NAME.sql       one function a file: replaced as a whole by a newer release
    sql/TOPIC.sql            the statements that the store sends, each under `-- name: NAME`

In the files `@name` stands for the qualified name of a table or function and `#name` for a bare one (of an
index, which lives in the schema of its table). Schema and prefix come from the constructor: they are
validated and quoted.

Opening a store applies missing migrations and installs functions in one transaction, under an advisory lock
that lasts as long as the transaction, so that it works behind a pooler. A process that waited for the lock
checks again. Migrations only add, so that processes of the release before continue on the same tables.

`installed_functions` records which release installed the functions, and a hash of their text. The same hash:
nothing to do. A newer release replaces them; an older one keeps them, so that two releases on one database
do not keep replacing each other's functions. Hence a release must keep the parameters and columns of a
function that the release before calls, or give the new one another name.

Functions that the store calls switch off plans for small tables (`SET enable_seqscan = off` and so on):
without statistics the planner takes a new table for an empty one, and a cached plan would read all of it
when it has grown. For the same reason rows are looked up by LATERAL or ANY, which fix the join order.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from outlast._version import __version__
from outlast.errors import InvalidValue
from outlast.stores._sql.sql_files import (
    Migration,
    check_version,
    named_statements,
    numbered_migrations,
)
from outlast.stores.postgres.connection import Connection

PACKAGE = "outlast.stores.postgres"
_MARK = re.compile(r"(?<![\w@#])([@#])([a-z]\w*)")
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]*")

MAX_SCHEMA_BYTES, MAX_PREFIX_BYTES = 63, 30
"""Bytes. PostgreSQL truncates longer names silently; ours add up to 25 to the prefix."""


class Queries:
    """The statements of one store."""

    def __init__(self, schema: str, prefix: str) -> None:
        self.schema = _checked(schema, "schema", MAX_SCHEMA_BYTES)
        self.prefix = _checked(prefix, "prefix", MAX_PREFIX_BYTES) if prefix else ""
        self._rendered = {name: self.render(sql) for name, sql in named_statements(PACKAGE).items()}

    def __getitem__(self, name: str) -> str:
        return self._rendered[name]

    def render(self, sql: str) -> str:
        """SQL text with the names filled in."""
        return _MARK.sub(lambda mark: self._named(*mark.groups()), sql)

    def _named(self, mark: str, name: str) -> str:
        bare = f'"{self.prefix}{name}"'
        return f'"{self.schema}".{bare}' if mark == "@" else bare


@cache
def queries_of(schema: str, prefix: str) -> Queries:
    """The statements of a store, rendered once."""
    return Queries(schema, prefix)


def _checked(name: str, what: str, limit: int) -> str:
    if not _IDENTIFIER.fullmatch(name) or len(name) > limit:
        raise InvalidValue(
            f"{what}={name!r}: use lower-case letters, digits and '_', beginning with a letter, "
            f"up to {limit} characters"
        )
    if what == "schema" and name.startswith("pg_"):
        raise InvalidValue(f"schema={name!r}: names that begin with pg_ are reserved by PostgreSQL")
    return name


def migrations() -> tuple[Migration, ...]:
    """All migrations, in order."""
    return numbered_migrations(PACKAGE)


def latest() -> int:
    """The schema version of this release."""
    return migrations()[-1].version


class Functions(NamedTuple):
    """All files of functions/, and the release that they belong to."""

    release: tuple[int, ...]
    hash: str
    script: str

    def replace(self, release: Sequence[int] | None, hash: str | None) -> bool:
        """Whether they replace functions that `release` has installed. Two builds of one release differ in
        development only: there the last one to open the store wins."""
        return release is None or (self.hash != hash and self.release >= tuple(release))


@cache
def functions() -> Functions:
    """The functions of this release."""
    folder = files(PACKAGE).joinpath("functions")
    texts = sorted((file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir())
    script = "\n".join(text for _, text in texts)
    release = re.match(r"[\d.]*\d", __version__)
    assert release is not None, "the version begins with the numbers of its release"
    numbers = tuple(map(int, release[0].split(".")))
    return Functions(numbers, hashlib.sha256(script.encode()).hexdigest(), script)


async def migrate(connection: Connection, queries: Queries, where: str) -> None:
    """Apply missing migrations and install newer functions; wait for a process that does the same."""
    if await _missing(connection, queries, where) == (latest(), False):
        return
    async with connection.transaction():
        await connection.fetch(queries["lock_migrations"])
        [[exists]] = await connection.fetch(queries["has_schema"], queries.schema)
        if not exists:
            await connection.execute(f'CREATE SCHEMA "{queries.schema}"')
        version, replace = await _missing(connection, queries, where)
        for migration in migrations():
            if migration.version > version:
                await connection.execute(queries.render(migration.script))
                await connection.fetch(queries["write_version"], migration.version)
        if replace:
            ours = functions()
            # Functions call each other: the order of their definitions does not matter.
            await connection.execute("SET LOCAL check_function_bodies = off")
            await connection.execute(queries.render(ours.script))
            await connection.fetch(queries["record_functions"], list(ours.release), ours.hash)


async def _missing(connection: Connection, queries: Queries, where: str) -> tuple[int, bool]:
    """The version of the tables, 0 if there are none, and whether our functions replace those in the
    database. Raises if the tables are of a newer release."""
    [[exists]] = await connection.fetch(queries["has_migrations"])
    if not exists:
        return 0, True
    [[version, release, hash]] = await connection.fetch(queries["read_version"])
    version = check_version(where, version or 0, latest())
    return version, functions().replace(release, hash)
