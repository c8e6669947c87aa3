"""Puts the triggers of a projection on the tables: projection/triggers.sql has what they do."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from outlast.model.projection import (
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    Projection,
    check_columns,
)
from outlast.stores.postgres.connection import Link
from outlast.stores.postgres.schema import Queries

_COLUMNS = """
    SELECT a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
    FROM pg_attribute AS a
    WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
"""
_PLACE = """
    SELECT format('%I.%I', n.nspname, c.relname)
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass($1)
"""
_MARK = "SELECT obj_description(to_regprocedure($1), 'pg_proc')"


async def install(link: Link, projection: Projection, queries: Queries) -> None:
    """Check the tables, and write to them from now on; what is there already is written once."""
    tables = {
        "executions": (projection.executions, EXECUTION_COLUMNS),
        "entries": (projection.entries, ENTRY_COLUMNS),
    }
    script = files("outlast.stores.postgres").joinpath("projection/triggers.sql").read_text("utf-8")
    for mark, (table, columns) in tables.items():
        found = await link.fetch(_COLUMNS, projection.quoted(table))
        check_columns(table, columns, {row[0]: row[1] for row in found})
        # Whoever commits may look for tables elsewhere.
        [[place]] = await link.fetch(_PLACE, projection.quoted(table))
        script = script.replace(f"<{mark}>", place)
    script = queries.render(script)
    digest = hashlib.sha256(script.encode()).hexdigest()
    marked = queries.render("@project_1()")
    [[mark]] = await link.fetch(_MARK, marked)
    if mark == digest:
        return
    async with link.transaction():
        await link.fetch(queries["lock_migrations"])
        [[mark]] = await link.fetch(_MARK, marked)
        if mark != digest:
            await link.execute(script)
            await link.execute(f"COMMENT ON FUNCTION {marked} IS '{digest}'")
