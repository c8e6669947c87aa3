"""The schema of a SQLite file: which version it has, and how it is brought up to date.

Two numbers in the head of the file say what it is: `application_id` that it is an outlast store,
`user_version` how many migrations it has seen. Both are read in one snapshot and, before anything
is changed, once more under the writer's lock: several processes may open a new file at once.

In the file of an application, where the tables of the store have a prefix, both numbers belong to
the application. There the table `migrations`, with the prefix, holds the version.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from outlast.errors import NotAStore
from outlast.stores._sql.session import (
    Migration,
    check_version,
    named_statements,
    numbered_migrations,
)
from outlast.stores.sqlite.connection import Connection, scalar

APPLICATION_ID = 0x6F75746C  # "outl"
PACKAGE = "outlast.stores.sqlite"


def query(name: str) -> str:
    """The statement of that name in sql/."""
    return named_statements(PACKAGE)[name]


def migrations() -> tuple[Migration, ...]:
    """All migrations, in order."""
    return numbered_migrations(PACKAGE)


def latest() -> int:
    """The version that this outlast writes."""
    return migrations()[-1].version


def version_of(connection: Connection, path: Path, *, prefix: str = "") -> int:
    """The version of the file, 0 for an empty one. Raises if it is no store, or too new."""
    connection.execute("BEGIN")
    try:
        application = scalar(connection, "PRAGMA application_id")
        version = _read_version(connection, prefix)
        tables = scalar(connection, "SELECT count(*) FROM sqlite_master")
    finally:
        connection.execute("COMMIT")
    if prefix and application == APPLICATION_ID:
        raise NotAStore(f"{path} is an outlast store without a prefix: open it without `prefix`")
    if not prefix and application != APPLICATION_ID and (application or version or tables):
        raise NotAStore(
            f"{path} is a SQLite database, but not an outlast store (application id "
            f"{application:#x}, {tables} tables and indexes): choose another file, or keep the tables "
            "of the store beside yours: SqliteStore(…, prefix='outlast_')"
        )
    return check_version(path, int(version), latest())


def migrate(connection: Connection, path: Path, *, prefix: str = "") -> None:
    """Bring the file up to date. Raises the driver's busy error if another connection is writing;
    then nothing has changed, and the caller tries again."""
    version = version_of(connection, path, prefix=prefix)
    # The mode is kept in the file, and cannot be set inside a transaction.
    connection.execute("PRAGMA journal_mode = wal").fetchall()
    if version == latest():
        return
    for migration in migrations():
        connection.execute("BEGIN IMMEDIATE")
        try:
            _apply(connection, migration, prefix)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")


def apply_missing(connection: Connection, *, prefix: str) -> None:
    """Bring the tables up to date within a transaction of the application, in its file."""
    for migration in migrations():
        _apply(connection, migration, prefix)


def _apply(connection: Connection, migration: Migration, prefix: str) -> None:
    if _read_version(connection, prefix) < migration.version:
        for statement in statements_of(migration):
            connection.execute(statement)
        _write_version(connection, prefix, migration.version)


def _read_version(connection: Connection, prefix: str) -> int:
    if not prefix:
        return int(scalar(connection, "PRAGMA user_version"))
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if scalar(connection, named, (f"{prefix}migrations",)) is None:
        return 0
    return int(scalar(connection, "SELECT max(version) FROM migrations") or 0)


def _write_version(connection: Connection, prefix: str, version: int) -> None:
    if prefix:
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {prefix}migrations (version INTEGER PRIMARY KEY)"
        )
        connection.execute("INSERT INTO migrations (version) VALUES (?)", (version,))
    else:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")


@cache
def statements_of(migration: Migration) -> tuple[str, ...]:
    """The single statements of a migration: SQLite runs one at a time."""
    # Statements end at a line's end: migrations keep to that, so that no parser is needed here.
    lines = migration.script.splitlines()
    code = "\n".join(line for line in lines if not line.lstrip().startswith("--"))
    return tuple(part.strip() for part in code.split(";\n") if part.strip())
