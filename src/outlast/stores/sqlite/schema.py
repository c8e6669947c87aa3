"""The tables and how they came to be: numbered files in migrations/, applied in order, never back.

Two numbers in the head of the file say what it is: `application_id` that it is ours, and
`user_version` how many migrations it has seen. Both are read in one snapshot and, before anything
is changed, once more under the writer's lock: several processes may open a new file at once.

In a file that is somebody else's, where our tables have a prefix, both numbers are theirs. There a
table `migrations` of ours says how far we are.

SQL by name: each `-- name:` in sql/*.sql is one statement.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from outlast.errors import NotAStore, SchemaTooNew
from outlast.stores.sqlite.connection import Connection, scalar

APPLICATION_ID = 0x6F75746C  # "outl"


class Migration(NamedTuple):
    """One step: its number, and its statements."""

    version: int
    statements: tuple[str, ...]


@cache
def migrations() -> tuple[Migration, ...]:
    """All steps, in order."""
    found = []
    for file in files("outlast.stores.sqlite").joinpath("migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if rest.endswith(".sql"):
            found.append(Migration(int(number), _split(file.read_text(encoding="utf-8"))))
    return tuple(sorted(found))


def latest() -> int:
    """The version that this outlast writes."""
    return migrations()[-1].version


def version_of(connection: Connection, path: Path, *, prefix: str = "") -> int:
    """The version of the file: 0 for an empty one. Refuses what is not ours, or newer than us."""
    connection.execute("BEGIN")
    try:
        application = scalar(connection, "PRAGMA application_id")
        version = _read_version(connection, prefix)
        tables = scalar(connection, "SELECT count(*) FROM sqlite_master")
    finally:
        connection.execute("COMMIT")
    if prefix and application == APPLICATION_ID:
        raise NotAStore(
            f"{path} is a store of its own, where our tables have no prefix: open it without one"
        )
    if not prefix and application != APPLICATION_ID and (application or version or tables):
        raise NotAStore(
            f"{path} is a SQLite database, but not an outlast store (application id "
            f"{application:#x}, {tables} tables and indexes): choose another file, or put our tables "
            "beside yours: SqliteStore(…, prefix='outlast_')"
        )
    if version > latest():
        raise SchemaTooNew(
            f"{path} has schema {version}, and this outlast knows {latest()}: a newer one has "
            "written it. Upgrade outlast in this process"
        )
    return int(version)


def migrate(connection: Connection, path: Path, *, prefix: str = "") -> None:
    """Bring the file up to date. Raises the driver's busy error if somebody else is writing; then
    nothing has changed, and the caller tries again."""
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
    """Bring our tables up to date in a transaction of somebody else's, in their file."""
    for migration in migrations():
        _apply(connection, migration, prefix)


def _apply(connection: Connection, migration: Migration, prefix: str) -> None:
    if _read_version(connection, prefix) < migration.version:
        for statement in migration.statements:
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


def _split(script: str) -> tuple[str, ...]:
    # Statements end at a line's end: migrations keep to that, so that no parser is needed here.
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    return tuple(part.strip() for part in code.split(";\n") if part.strip())


_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def query(name: str) -> str:
    """The statement of that name."""
    return _queries()[name]


@cache
def _queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files("outlast.stores.sqlite").joinpath("sql").iterdir():
        # Before the first name stands what the file is about.
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found
