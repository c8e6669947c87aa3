"""The schema of a SQLite file: which version it has, and how it is brought up to date.

Two numbers in the head of the file say what it is: `application_id` that it is an outlast store,
`user_version` how many migrations it has seen. Both are read in one snapshot and, before anything
is changed, once more under the writer's lock: several processes may open a new file at once.

In the file of an application, where the tables of the store have a prefix, both numbers belong to
the application. There the table `migrations`, with the prefix, holds the version.

Projections are triggers, which `projection/triggers.sql` has and `install` creates in the file.
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from outlast.errors import NotAStore, StoreFault
from outlast.model.query import (
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    Projection,
    check_columns,
)
from outlast.stores._sql.session import (
    Migration,
    check_version,
    named_statements,
    numbered_migrations,
)
from outlast.stores.sqlite.connection import Connection, prefixed, scalar

APPLICATION_ID = 0x6F75746C  # "outl"
PACKAGE = "outlast.stores.sqlite"


def query(name: str) -> str:
    """The statement of that name in statements/."""
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


_PART = re.compile(r"^-- name: (\w+)\n(?:--(?! when).*\n)*-- when: (.*)\n", re.MULTILINE)
_BORN = ("runs_born", "details_born", "values_born", "entries_born", "events_born")
OLDEST = (3, 38)


def install(connection: Connection, projection: Projection, prefix: str) -> None:
    """Check the tables and create the triggers; existing rows are copied once. Run it in a
    transaction."""
    version = str(scalar(connection, "SELECT sqlite_version()"))
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise StoreFault(f"a projection needs SQLite 3.38 or later, and this is {version}")
    for table, columns in (
        (projection.executions, EXECUTION_COLUMNS),
        (projection.entries, ENTRY_COLUMNS),
    ):
        check_columns(table, columns, _columns_of(connection, table))
    changed = False
    for name, (when, act) in _parts(projection).items():
        trigger = f"CREATE TRIGGER {name} {when}\nBEGIN\n{act}; END"
        sql = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?"
        found = scalar(connection, sql, (f"{prefix}{name}",))
        if found == (prefixed(trigger, prefix) if prefix else trigger):
            continue
        if found is not None:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(trigger)
        changed = True
    if changed:
        _catch_up(connection, projection)


def _catch_up(connection: Connection, projection: Projection) -> None:
    """Copy existing rows, by the statements of the triggers."""
    for name in _BORN:
        table = {"runs": "runs", "details": "run_details", "values": "run_values"}.get(
            name.partition("_")[0], name.partition("_")[0]
        )
        when, act = _parts(projection, rows=f"{table} AS NEW")[name]
        _, _, condition = when.partition(" WHEN ")
        entries = projection.quoted(projection.entries)
        if table in ("entries", "events"):
            act += f"\nAND NOT EXISTS (SELECT 1 FROM {entries} AS e WHERE e.id = NEW.id)"  # noqa: S608
        if condition:
            act += f" AND {condition}"
        connection.execute(act)


def _columns_of(connection: Connection, table: str) -> dict[str, bool]:
    rows = connection.execute(
        'SELECT name, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,)
    )
    return {
        name: bool(not_null and default is None and not key)
        for name, not_null, default, key in rows.fetchall()
    }


def _parts(projection: Projection, *, rows: str = "(SELECT 1)") -> dict[str, tuple[str, str]]:
    text = files("outlast.stores.sqlite").joinpath("projection/triggers.sql").read_text("utf-8")
    text = text.replace("<executions>", projection.quoted(projection.executions))
    text = text.replace("<entries>", projection.quoted(projection.entries))
    text = text.replace("<rows>", rows)
    _, *found = _PART.split(text)
    return {
        name: (when, _spelled(act.strip()))
        for name, when, act in zip(found[::3], found[1::3], found[2::3], strict=True)
    }


def _spelled(act: str) -> str:
    for name, meaning in _WORDS.items():
        place = re.compile(rf"\b{name}\(([\w.]+(?: \+ \d+)?)\)")
        act = place.sub(partial(_meant, meaning), act)
    return act


def _meant(meaning: str, word: re.Match[str]) -> str:
    return meaning.replace("$", word[1])


_BYTE = (
    "((instr('0123456789ABCDEF', substr(h, $, 1)) - 1) * 16"
    " + instr('0123456789ABCDEF', substr(h, $ + 1, 1)) - 1)"
)
_HEAD = (
    "CASE WHEN byte(p) BETWEEN 160 AND 191 THEN 2 WHEN byte(p) IN (217, 196) THEN 4"
    " WHEN byte(p) IN (218, 197) THEN 6 ELSE 10 END"
)
_SIZE = (
    "CASE WHEN byte(p) BETWEEN 160 AND 191 THEN byte(p) - 160"
    " WHEN byte(p) IN (217, 196) THEN byte(p + 2)"
    " WHEN byte(p) IN (218, 197) THEN byte(p + 2) * 256 + byte(p + 4)"
    " ELSE ((byte(p + 2) * 256 + byte(p + 4)) * 256 + byte(p + 6)) * 256 + byte(p + 8) END"
)
# What is published is kept as MessagePack, a map of text to bytes: `h` is its hexadecimal text, `p` the
# place of one of its values in there. There is no shorter way to read it in SQL.
_PUBLISHED = f"""coalesce((
    WITH RECURSIVE tokens (h, p, number, remaining) AS (
        SELECT h, CASE byte(p) WHEN 222 THEN 7 WHEN 223 THEN 11 ELSE 3 END, 0,
               2 * CASE byte(p) WHEN 222 THEN byte(p + 2) * 256 + byte(p + 4)
                   WHEN 223 THEN byte(p + 6) * 256 + byte(p + 8) ELSE byte(p) - 128 END
        FROM (SELECT hex($) AS h, 1 AS p)
        UNION ALL
        SELECT h, p + {_HEAD} + 2 * ({_SIZE}), number + 1, remaining - 1
        FROM tokens WHERE remaining > 1
    ), texts (number, text) AS (
        SELECT number, CAST(substr($, (p + {_HEAD} + 1) / 2, {_SIZE}) AS TEXT)
        FROM tokens WHERE remaining > 0
    )
    SELECT json_group_object(n.text, json(CASE WHEN json_valid(v.text) THEN v.text
                                               ELSE json_quote(v.text) END))
    FROM texts AS n JOIN texts AS v ON v.number = n.number + 1 WHERE n.number % 2 = 0), '{{}}')"""  # noqa: S608
_WORDS = {
    "published": _PUBLISHED,
    "byte": _BYTE,
    "payload": (
        "CASE WHEN $ IS NULL THEN NULL WHEN json_valid(CAST($ AS TEXT)) THEN CAST($ AS TEXT)"
        " ELSE json_quote(hex($)) END"
    ),
    "doc": "CASE WHEN json_valid(CAST($ AS TEXT)) THEN CAST($ AS TEXT) ELSE '{}' END",
    "at": "(datetime($ / 1000000, 'unixepoch') || printf('.%06d', $ % 1000000))",
}
