"""A store on an engine.

What the user has passed in: an engine or a factory of sessions, for threads or for a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import QueuePool

from outlast.contrib.sqlalchemy.models import projection_of
from outlast.errors import InvalidValue, MissingExtra, Unavailable
from outlast.model.query import Projection
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


Place: TypeAlias = "Engine | AsyncEngine | sessionmaker[Any] | async_sessionmaker[Any]"
AnySession: TypeAlias = "Session | scoped_session[Any] | AsyncSession | async_scoped_session[Any]"
Transaction: TypeAlias = "AnySession | Connection | AsyncConnection"
DRIVERS = {
    "postgresql": ("asyncpg", "psycopg"),
    "sqlite": ("pysqlite", "aiosqlite"),
}

MOST = 20
"""Transactions at once where the pool says nothing: each is a connection to the server."""


class Binding(NamedTuple):
    """An engine of the user's, and how its sessions are made."""

    engine: Engine
    """The engine for threads: of an async engine the one that it is made of."""
    loops: AsyncEngine | None
    """The engine for a loop, if it is one."""
    session: Callable[[], Any]

    @property
    def dialect(self) -> str:
        """`postgresql` or `sqlite`."""
        return self.engine.dialect.name

    @property
    def room(self) -> int:
        """How many transactions of steps may be open at once, each with a connection of the pool: half of
        it. If they had all, no claim could be renewed, and their runs would be taken from us."""
        pool = self.engine.pool
        spare = getattr(pool, "_max_overflow", -1)
        if not isinstance(pool, QueuePool) or spare < 0:
            return MOST
        half = (pool.size() + spare) // 2
        # On SQLite claims are renewed on a connection of the store's own.
        return min(max(half, self.dialect == "sqlite"), MOST)

    @property
    def where(self) -> str:
        """The database, as it may be shown."""
        return self.engine.url.set(username=None, password=None, query={}).render_as_string()


def binding_of(place: Place) -> Binding:
    """What was passed in, once it is clear that it will do."""
    engine, session = _engine_of(place)
    if isinstance(engine, AsyncEngine):
        loops, plain = engine, engine.sync_engine
        session = session or (lambda: AsyncSession(loops, expire_on_commit=False))
        binding = Binding(plain, loops, session)
    elif isinstance(engine, Engine):
        plain = engine
        session = session or (lambda: Session(plain, expire_on_commit=False))
        binding = Binding(plain, None, session)
    else:
        raise InvalidValue(
            f"{type(place).__name__} is no place for a store: pass an Engine, an AsyncEngine, or a "
            "sessionmaker or async_sessionmaker that is bound to one"
        )
    _check_driver(binding.engine)
    return binding


def _engine_of(place: Any) -> tuple[Any, Callable[[], Any] | None]:
    if isinstance(place, (sessionmaker, async_sessionmaker)):
        return place.kw.get("bind"), place
    return place, None


def _check_driver(engine: Engine) -> None:
    dialect, driver = engine.dialect.name, engine.dialect.driver
    if dialect not in DRIVERS:
        raise InvalidValue(
            f"this engine speaks {dialect}, and a store needs PostgreSQL or SQLite: give it a database "
            "of its own, such as outlast.App('sqlite:///outlast.db'), or move to one of them"
        )
    if driver not in DRIVERS[dialect]:
        urls = " or ".join(f"{dialect}+{name}://" for name in DRIVERS[dialect])
        raise InvalidValue(
            f"the driver {driver} is not supported: use a URL that begins with {urls}"
        )
    _check_isolation(engine)


def _check_isolation(engine: Engine) -> None:
    # By an option of the engine, or as it was made: that is nowhere to be read but here.
    made = getattr(engine.dialect, "_on_connect_isolation_level", None)
    level = engine.get_execution_options().get("isolation_level", made)
    if level == "AUTOCOMMIT":
        raise InvalidValue(AUTOCOMMIT)
    if engine.dialect.name == "postgresql" and level in STRICTER:
        raise InvalidValue(
            f"this engine has isolation_level={level!r}: a transactional step would not see that the "
            "claim of its run was renewed meanwhile, and could never be committed. Pass "
            "engine.execution_options(isolation_level='READ COMMITTED'), which shares its pool; sessions "
            "of the stricter one may be passed to on()"
        )


STRICTER = ("REPEATABLE READ", "SERIALIZABLE")


AUTOCOMMIT = (
    "this engine commits each statement by itself (isolation_level='AUTOCOMMIT'), so nothing can be "
    "committed together: pass one without it, and use engine.execution_options(isolation_level="
    "'AUTOCOMMIT') for what needs it"
)


def check_same_place(binding: Binding, engine: Engine) -> None:
    """Refuse a transaction on another database: what is written there is not written here."""
    mine, theirs = binding.engine.url, engine.url
    if (mine.host, mine.port, mine.database) != (theirs.host, theirs.port, theirs.database):
        raise InvalidValue(
            f"this transaction is on {theirs.render_as_string()}, and the store on {binding.where}: "
            "use a session that writes to the database of the store"
        )


def unwrapped(error: Exception, where: str) -> Exception:
    """The driver's own error in one of SQLAlchemy's."""
    if isinstance(error, PoolTimeout):
        return Unavailable(
            f"the engine of {where} had no connection left ({error}): give it a larger pool_size, or "
            "end transactions sooner"
        )
    if isinstance(error, DBAPIError) and error.orig is not None:
        found: BaseException = error.orig
        # The dialect of asyncpg puts its errors into some that look like DB-API's.
        if found.__cause__ is not None and type(found).__module__.startswith("sqlalchemy"):
            found = found.__cause__
        return found if isinstance(found, Exception) else error
    if isinstance(error, SQLAlchemyError):
        return InvalidValue(f"this session or connection cannot be used: {error}")
    return error
