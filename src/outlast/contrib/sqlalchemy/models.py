"""The read model: runs and their audit lines as ordinary tables and models.

Use the tables as they are (`make_tables`), or mix the columns into your own models, with further columns and
relationships. Only outlast writes these columns, in the commit that changes a run.

`upgrade` and `downgrade` are a migration for Alembic::

    # versions/0002_workflows.py
    from alembic import op
    from outlast.contrib.sqlalchemy import models

    revision, down_revision = "0002", "0001"

    def upgrade():
        models.upgrade(op)

    def downgrade():
        models.downgrade(op)

Alembic does not manage the store's own tables: the store creates and migrates them when it is opened. On
SQLite they are in the same file; `include_name` excludes them from autogenerate.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    MetaData,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from outlast.errors import InvalidValue
from outlast.model.query import (
    ENTRIES,
    ENTRY_COLUMNS,
    EXECUTION_COLUMNS,
    EXECUTIONS,
    Projection,
    check_columns,
)
from outlast.stores.sqlite.connection import PREFIX, check_prefix

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
EMPTY = text("'{}'")


class ExecutionMixin:
    """The columns of a run: ``class Execution(ExecutionMixin, Base): __tablename__ = "…"``."""

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    workflow_id: Mapped[str] = mapped_column(Text, index=True)
    status: Mapped[str] = mapped_column(Text, index=True, server_default="running")
    input: Mapped[Any] = mapped_column(Json, nullable=True, server_default=EMPTY)
    ctx: Mapped[Any] = mapped_column(Json, nullable=True, server_default=EMPTY)
    current_step: Mapped[str | None] = mapped_column(Text)
    result: Mapped[Any] = mapped_column(Json, nullable=True)
    recover_to: Mapped[str | None] = mapped_column(Text)
    halt_data: Mapped[Any] = mapped_column(Json, nullable=True)
    error: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class EntryMixin:
    """The columns of an audit line. `__executions__` names the table of the runs."""

    __executions__: str = EXECUTIONS

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    step_id: Mapped[str] = mapped_column(Text)
    step_type: Mapped[str] = mapped_column(Text)
    action: Mapped[str] = mapped_column(Text)
    duration_ms: Mapped[int | None] = mapped_column(BigInteger)
    input: Mapped[Any] = mapped_column(Json, nullable=True)
    output: Mapped[Any] = mapped_column(Json, nullable=True)
    error: Mapped[str | None] = mapped_column(Text)
    timestamp: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    @declared_attr
    def execution_id(cls) -> Mapped[str]:  # noqa: N805 - SQLAlchemy calls it with the class
        """The id of the run."""
        return mapped_column(Text, _to(cls.__executions__), nullable=False, index=True)


def make_tables(
    metadata: MetaData,
    *,
    executions: str = EXECUTIONS,
    entries: str = ENTRIES,
    schema: str | None = None,
) -> tuple[Table, Table]:
    """Define the two tables in your metadata, for Alembic and `create_all`."""
    Projection(executions, entries, schema).check()
    there = metadata

    class Base(DeclarativeBase):
        metadata = there

    class Execution(ExecutionMixin, Base):
        __tablename__ = executions
        __table_args__ = {"schema": schema}  # noqa: RUF012 - as SQLAlchemy has it

    class Line(EntryMixin, Base):
        __tablename__ = entries
        __table_args__ = {"schema": schema}  # noqa: RUF012
        __executions__ = f"{schema}.{executions}" if schema else executions

    made = Execution.__table__, Line.__table__
    assert isinstance(made[0], Table) and isinstance(made[1], Table)  # noqa: PT018
    return made  # type: ignore[return-value]


def projection_of(given: Any) -> Projection | None:
    """The projection for an argument: True, names, or two models, whose columns are checked."""
    if given is None or given is False:
        return None
    if given is True:
        return Projection()
    if isinstance(given, Projection):
        given.check()
        return given
    try:
        tables = [getattr(model, "__table__", model) for model in given]
        executions, entries = [table for table in tables if isinstance(table, Table)]
    except (TypeError, ValueError):
        raise InvalidValue(
            f"projection={given!r}: use True, a Projection with the names of two tables, or two "
            "models, for runs and for their entries"
        ) from None
    check_columns(executions.name, EXECUTION_COLUMNS, _needs(executions))
    check_columns(entries.name, ENTRY_COLUMNS, _needs(entries))
    projection = Projection(executions.name, entries.name, executions.schema)
    projection.check()
    return projection


def _needs(table: Table) -> dict[str, bool]:
    return {
        column.name: not column.nullable
        and column.server_default is None
        and column.identity is None
        and column.computed is None
        for column in table.columns
    }


def _to(executions: str) -> ForeignKey:
    # Deferred to the end of the transaction, so that the order of writes does not matter.
    return ForeignKey(f"{executions}.id", ondelete="CASCADE", deferrable=True, initially="DEFERRED")


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
    """Create the tables with their indexes and the foreign key."""
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
    """Drop the triggers, then the tables. First stop the workers that use the projection."""
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
    """For `context.configure(include_name=…)`: excludes the tables of outlast."""
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
