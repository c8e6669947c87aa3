"""A store on an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.contrib.sqlalchemy.binding import Place, binding_of
from outlast.contrib.sqlalchemy.models import projection_of
from outlast.errors import MissingExtra
from outlast.model.projection import Projection
from outlast.ports.clock import Clock
from outlast.ports.store import Store


def store_of(
    place: Place,
    *,
    schema: str = "outlast",
    prefix: str | None = None,
    notify: bool = True,
    clock: Clock | None = None,
    projection: bool | Projection | Sequence[Any] = False,
) -> Store:
    """The store in the database of an engine of yours: an `Engine`, an `AsyncEngine`, or a sessionmaker
    that is bound to one. The engine is used and never disposed of.

    On PostgreSQL our tables are made in `schema`, with `prefix` before their names; on SQLite they stand
    in your file, each with `prefix` (``outlast_``) before its name. With `notify`, processes that listen
    hear at once of what is written here.

    With `projection`, runs and their audit lines are also in two tables that your own queries may read
    and join: True for `workflow_executions` and `workflow_entries`, a `Projection` for other names, or
    two models of yours, made with `ExecutionMixin` and `EntryMixin`. The tables have to be there.
    """
    binding = binding_of(place)
    projected = projection_of(projection)
    if binding.dialect == "sqlite":
        from outlast.contrib.sqlalchemy.sqlite import SqlAlchemySqliteStore
        from outlast.stores.sqlite.connection import PREFIX

        return SqlAlchemySqliteStore(
            binding,
            prefix=PREFIX if prefix is None else prefix,
            clock=clock,
            projection=projected,
        )
    try:
        from outlast.contrib.sqlalchemy.postgres import SqlAlchemyPostgresStore
    except ImportError as error:
        raise MissingExtra(
            "PostgreSQL needs an extra: pip install 'outlast[sqlalchemy,postgres]'"
        ) from error
    return SqlAlchemyPostgresStore(
        binding,
        schema=schema,
        prefix=prefix or "",
        notify=notify,
        clock=clock,
        projection=projected,
    )
