"""Tables, functions and named statements of a store, and how a database gets them.

::

    migrations/NNNN_x.sql    tables, indexes, views, triggers: numbered, each applied once
    functions/NAME.sql       one function a file: replaced as a whole by a newer release
    statements/TOPIC.sql     the statements that the store sends, each under `-- name: NAME`

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

The server: its version, settings and durability, read once when a store opens.

Installs the triggers of a projection (projection/triggers.sql).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from msgspec import Struct

from outlast._version import __version__
from outlast.errors import InvalidValue, StoreFault
from outlast.model.query import (
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    Projection,
    check_columns,
)
from outlast.ports.port import Durability
from outlast.stores._sql.session import (
    Migration,
    check_version,
    named_statements,
    numbered_migrations,
)
from outlast.stores.postgres.connection import Connection
from outlast.stores.postgres.rows import Row

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


_logger = logging.getLogger("outlast.postgres")

MIN_VERSION = 130000


class Server(Struct, frozen=True, kw_only=True):
    """Facts for operators, and for the choice of connections."""

    version: str
    pooled: bool
    fsync: str
    synchronous_commit: str
    full_page_writes: str
    standbys: str
    in_recovery: bool

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives."""
        if self.fsync != "on" or self.full_page_writes != "on" or self.synchronous_commit == "off":
            return Durability.PROCESS_CRASH
        if self.standbys and self.synchronous_commit not in ("local", "off"):
            return Durability.NODE_LOSS
        return Durability.POWER_LOSS

    @property
    def warnings(self) -> list[str]:
        """Unsafe settings, each with what to change."""
        found = []
        if self.fsync != "on":
            found.append(
                "fsync=off: a crash of the machine can damage the whole database; turn it on"
            )
        if self.full_page_writes != "on":
            found.append(
                "full_page_writes=off: a power loss can damage pages; turn it on unless the disk "
                "writes them whole"
            )
        if self.synchronous_commit == "off":
            found.append(
                "synchronous_commit=off: a crash of the server loses the last commits although "
                "they were acknowledged; set it to on for this database or user"
            )
        return found

    def report(self, where: str) -> None:
        """Log the warnings."""
        for warning in self.warnings:
            _logger.warning("%s: %s", where, warning)


def read_server(row: Row, connection_pid: int, where: str) -> Server:
    """The row of `describe_server`. Raises for a server that outlast does not support."""
    number, encoding, pid, fsync, synchronous, pages, standbys, recovering, version, isolation = row
    if number < MIN_VERSION:
        raise StoreFault(f"{where} runs PostgreSQL {version}: 13 or later is needed")
    if encoding != "UTF8":
        raise StoreFault(
            f"{where} has the encoding {encoding}: create the database with ENCODING 'UTF8'"
        )
    if isolation != "read committed":
        # A statement must see what was committed while it waited for a lock.
        raise StoreFault(
            f"{where} has default_transaction_isolation={isolation!r}: set it to 'read committed' "
            "for this user (ALTER ROLE … SET default_transaction_isolation = 'read committed')"
        )
    return Server(
        version=version,
        # A pooler invents the process id that its clients see.
        pooled=pid != connection_pid,
        fsync=fsync,
        synchronous_commit=synchronous,
        full_page_writes=pages,
        standbys=standbys,
        in_recovery=recovering,
    )


def check_pool_size(size: Any, name: str = "pool_size") -> int:
    """Validate a number of connections."""
    if not isinstance(size, int) or not 1 <= size <= 1000:
        raise InvalidValue(f"{name}={size!r}: use a number of connections from 1 to 1000")
    return size


_COLUMNS = """
    SELECT a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
    FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
"""
_QUALIFIED_NAME = """
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass($1)
"""
_INSTALLED_HASH = "SELECT obj_description(to_regprocedure($1), 'pg_proc')"


async def install(link: Connection, projection: Projection, queries: Queries) -> None:
    """Check the tables and install the triggers; existing runs are written once."""
    tables = {
        "executions": (projection.executions, EXECUTION_COLUMNS),
        "entries": (projection.entries, ENTRY_COLUMNS),
    }
    script = files("outlast.stores.postgres").joinpath("projection/triggers.sql").read_text("utf-8")
    for placeholder, (table, columns) in tables.items():
        found = await link.fetch(_COLUMNS, projection.quoted(table))
        check_columns(table, columns, {row[0]: row[1] for row in found})
        # Qualified: the search path of a committing session may differ.
        [[name]] = await link.fetch(_QUALIFIED_NAME, projection.quoted(table))
        script = script.replace(f"<{placeholder}>", name)
    script = queries.render(script)
    hash = hashlib.sha256(script.encode()).hexdigest()
    function = queries.render("@project()")
    [[installed]] = await link.fetch(_INSTALLED_HASH, function)
    if installed == hash:
        return
    async with link.transaction():
        await link.fetch(queries["lock_migrations"])
        [[installed]] = await link.fetch(_INSTALLED_HASH, function)
        if installed != hash:
            await link.execute(script)
            await link.execute(f"COMMENT ON FUNCTION {function} IS '{hash}'")
