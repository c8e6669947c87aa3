"""Projections: creates the triggers of projection/triggers.sql in the file."""

from __future__ import annotations

import re
from functools import partial
from importlib.resources import files

from outlast.errors import StoreFault
from outlast.model.query import (
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    Projection,
    check_columns,
)
from outlast.stores.sqlite.connection import Connection, prefixed, scalar

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
