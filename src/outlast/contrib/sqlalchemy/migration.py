"""A ready migration: what Alembic has to do for the two tables of the projection.

::

    # versions/0002_workflows.py
    from alembic import op
    from outlast.contrib.sqlalchemy import migration

    revision, down_revision = "0002", "0001"

    def upgrade():
        migration.upgrade(op)

    def downgrade():
        migration.downgrade(op)

Our own tables are not Alembic's: a store makes and migrates them when it is opened. On SQLite they are in
the same file; `include_name` tells autogenerate to leave them alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import MetaData
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from outlast.contrib.sqlalchemy.models import make_tables
from outlast.model.projection import Projection
from outlast.stores.sqlite.connection import PREFIX, check_prefix

TRIGGERS = [
    "runs_turn",
    "runs_born",
    "runs_bring",
    "runs_gone",
    "details_born",
    "details_turn",
    "values_born",
    "values_turn",
    "entries_born",
    "events_born",
]


def upgrade(op: Any, projection: Projection = Projection()) -> None:  # noqa: B008 - it is frozen
    """Make the tables, with their indexes and the foreign key."""
    for table in _tables(projection):
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))


def downgrade(
    op: Any,
    projection: Projection = Projection(),  # noqa: B008
    *,
    schema: str = "outlast",
    prefix: str | None = None,
) -> None:
    """Drop what writes to the tables, then the tables. Stop workers that have a projection first."""
    if op.get_context().dialect.name == "postgresql":
        from outlast.stores.postgres.schema import queries_of  # it needs a driver

        named = queries_of(schema, prefix or "")
        op.execute(named.render("DROP FUNCTION IF EXISTS @project() CASCADE"))
    else:
        ours = check_prefix(PREFIX if prefix is None else prefix)
        for name in TRIGGERS:
            op.execute(f"DROP TRIGGER IF EXISTS {ours}{name}")
    for table in reversed(_tables(projection)):
        op.execute(DropTable(table))


def include_name(name: str | None, kind: str, parents: Mapping[str, Any]) -> bool:
    """For `context.configure(include_name=…)`: all but our own tables."""
    del parents
    return not (kind == "table" and name is not None and name.startswith(PREFIX))


def _tables(projection: Projection) -> tuple[Any, Any]:
    projection.check()
    return make_tables(
        MetaData(),
        executions=projection.executions,
        entries=projection.entries,
        schema=projection.schema,
    )
