"""`store_of`: the store in the database of a user's engine. `Binding`: the engine and its sessions, for
threads or for an event loop."""

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
    """The store in the database of your engine: an `Engine`, an `AsyncEngine`, or a sessionmaker that is
    bound to one. The engine is used and never disposed of.

    On PostgreSQL the tables are created in `schema`, with `prefix` before their names; on SQLite in your file,
    with `prefix` (``outlast_``). With `notify`, commits send notifications that wake other processes
    immediately.

    With `projection`, runs and their audit lines are also in two tables for your own queries: True for
    `workflow_executions` and `workflow_entries`, a `Projection` for other names, or two models with
    `ExecutionMixin` and `EntryMixin`. The tables must exist.
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
"""Concurrent transactions if the pool has no limit: each needs a connection to the server."""


class Binding(NamedTuple):
    """A user's engine, and how to create its sessions."""

    engine: Engine
    """The engine for threads; of an async engine its sync engine."""
    loops: AsyncEngine | None
    """The engine for an event loop, if it is an async one."""
    session: Callable[[], Any]

    @property
    def dialect(self) -> str:
        """`postgresql` or `sqlite`."""
        return self.engine.dialect.name

    @property
    def room(self) -> int:
        """How many steps may have an open transaction at once: half of the pool. If they used all connections,
        leases could not be renewed, and the runs would be lost to other workers."""
        pool = self.engine.pool
        spare = getattr(pool, "_max_overflow", -1)
        if not isinstance(pool, QueuePool) or spare < 0:
            return MOST
        half = (pool.size() + spare) // 2
        # On SQLite leases are renewed on the store's own connection.
        return min(max(half, self.dialect == "sqlite"), MOST)

    @property
    def where(self) -> str:
        """The database without its password."""
        return self.engine.url.set(username=None, password=None, query={}).render_as_string()


def binding_of(place: Place) -> Binding:
    """The binding of an argument, after checks of dialect, driver and isolation level."""
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
            f"a store cannot use a {type(place).__name__}: pass an Engine, an AsyncEngine, or a "
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
            f"this engine is for {dialect}, and a store needs PostgreSQL or SQLite: use a separate store, "
            "such as outlast.App('sqlite:///outlast.db'), or one of these databases"
        )
    if driver not in DRIVERS[dialect]:
        urls = " or ".join(f"{dialect}+{name}://" for name in DRIVERS[dialect])
        raise InvalidValue(
            f"the driver {driver} is not supported: use a URL that starts with {urls}"
        )
    _check_isolation(engine)


def _check_isolation(engine: Engine) -> None:
    # An option of the engine, or an argument of create_engine, which is found only here.
    made = getattr(engine.dialect, "_on_connect_isolation_level", None)
    level = engine.get_execution_options().get("isolation_level", made)
    if level == "AUTOCOMMIT":
        raise InvalidValue(AUTOCOMMIT)
    if engine.dialect.name == "postgresql" and level in STRICTER:
        raise InvalidValue(
            f"this engine has isolation_level={level!r}: a transactional step would not see that the "
            "lease of its run was renewed, and could never commit. Pass "
            "engine.execution_options(isolation_level='READ COMMITTED'), which shares its pool; sessions "
            "with the stricter level may be passed to on()"
        )


STRICTER = ("REPEATABLE READ", "SERIALIZABLE")


AUTOCOMMIT = (
    "this engine commits each statement by itself (isolation_level='AUTOCOMMIT'), so it has no "
    "transactions: pass an engine without it, and use engine.execution_options(isolation_level="
    "'AUTOCOMMIT') where you need it"
)


def check_same_database(binding: Binding, engine: Engine) -> None:
    """Raise for a transaction on another database than the store's."""
    mine, theirs = binding.engine.url, engine.url
    if (mine.host, mine.port, mine.database) != (theirs.host, theirs.port, theirs.database):
        raise InvalidValue(
            f"this transaction is on {theirs.render_as_string()}, the store on {binding.where}: "
            "use a session that writes to the database of the store"
        )


def unwrapped(error: Exception, where: str) -> Exception:
    """The driver's error inside an error of SQLAlchemy."""
    if isinstance(error, PoolTimeout):
        return Unavailable(
            f"the pool of {where} has no free connection ({error}): increase pool_size, or end "
            "transactions sooner"
        )
    if isinstance(error, DBAPIError) and error.orig is not None:
        found: BaseException = error.orig
        # The dialect of asyncpg wraps its errors in DB-API-like ones.
        if found.__cause__ is not None and type(found).__module__.startswith("sqlalchemy"):
            found = found.__cause__
        return found if isinstance(found, Exception) else error
    if isinstance(error, SQLAlchemyError):
        return InvalidValue(f"this session or connection cannot be used: {error}")
    return error
