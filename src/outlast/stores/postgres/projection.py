"""Installs the triggers of a projection (projection/triggers.sql)."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from outlast.model.projection import (
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    Projection,
    check_columns,
)
from outlast.stores.postgres.connection import Connection
from outlast.stores.postgres.schema import Queries

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
