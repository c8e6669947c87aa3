"""Creates the tables in Django's migrations, from outlast's own numbered SQL files.

The table `outlast_migrations` records which files have been applied, so it does not matter whether a worker
or Django applied them. A Django migration names the last file that existed when it was written; a test
checks that the newest migration names the newest file.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from django.db import migrations

from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.wakeups import run_blocking
from outlast.errors import InvalidValue

VIEW = "outlast_django_runs"
_MADE = re.compile(r"^CREATE (?:OR REPLACE )?(TABLE|SEQUENCE|FUNCTION) @(\w+)", re.MULTILINE)


class MakeTables(migrations.RunPython):
    """Apply the pending files. `postgresql` and `sqlite` are the numbers of the last file."""

    def __init__(self, *, postgresql: int, sqlite: int) -> None:
        self.numbers = {"postgresql": postgresql, "sqlite": sqlite}
        super().__init__(make_tables, drop_tables)

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """The operation as written in the migration."""
        return self.__class__.__qualname__, [], dict(self.numbers)


def make_tables(_: Any, schema_editor: Any) -> None:
    """Create or migrate the tables, only in the database of the settings."""
    settings = read_settings()
    connection = schema_editor.connection
    if connection.alias != settings.database:
        return
    match connection.vendor:
        case "postgresql":
            _on_postgres(connection.alias, settings.schema)
        case "sqlite":
            _on_sqlite(connection.connection)
        case vendor:
            raise InvalidValue(
                f"database {connection.alias!r} is {vendor}: outlast works on PostgreSQL and SQLite"
            )
    view = files("outlast.contrib.django").joinpath("sql", f"{connection.vendor}_runs.sql")
    with connection.cursor() as cursor:
        cursor.execute(f"DROP VIEW IF EXISTS {VIEW}")
        cursor.execute(view.read_text(encoding="utf-8"))


def drop_tables(_: Any, schema_editor: Any) -> None:
    """Drop all tables: every run is lost."""
    settings = read_settings()
    connection = schema_editor.connection
    if connection.alias != settings.database:
        return
    with connection.cursor() as cursor:
        cursor.execute(f"DROP VIEW IF EXISTS {VIEW}")
        for statement in _drops(connection.vendor, settings.schema, cursor):
            cursor.execute(statement)


def _on_postgres(alias: str, schema: str) -> None:
    from outlast.contrib.django.postgres import PREFIX, ThreadConnection
    from outlast.stores.postgres.schema import migrate, queries_of

    where = f"Django's database {alias!r}"
    run_blocking(migrate(ThreadConnection(alias), queries_of(schema, PREFIX), where))


def _on_sqlite(connection: Any) -> None:
    from outlast.stores.sqlite.connection import PREFIX, PrefixedConnection
    from outlast.stores.sqlite.schema import apply_missing

    apply_missing(PrefixedConnection(connection, PREFIX), prefix=PREFIX)


def _drops(vendor: str, schema: str, cursor: Any) -> list[str]:
    if vendor == "sqlite":
        from outlast.stores.sqlite.connection import PREFIX, tables

        return [f"DROP TABLE IF EXISTS {PREFIX}{name}" for name in tables()]
    from outlast.contrib.django.postgres import PREFIX
    from outlast.stores.postgres.schema import functions as installed
    from outlast.stores.postgres.schema import migrations

    scripts = [*(migration.script for migration in migrations()), installed().script]
    made = [pair for script in scripts for pair in _MADE.findall(script)]
    functions = [f"{PREFIX}{name}" for kind, name in made if kind == "FUNCTION"]
    cursor.execute(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n "
        "ON n.oid = p.pronamespace WHERE n.nspname = %s AND p.proname = ANY(%s)",
        [schema, functions],
    )
    return [
        *(
            f'DROP {kind} IF EXISTS "{schema}"."{PREFIX}{name}" CASCADE'
            for kind, name in made
            if kind != "FUNCTION"
        ),
        *(f"DROP FUNCTION IF EXISTS {name} CASCADE" for (name,) in cursor.fetchall()),
    ]
