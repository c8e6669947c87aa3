"""Django's system checks: the setting, and whether the database can provide the guarantees.

Errors stop `runserver`, `migrate` and the worker; warnings are about problems that show up later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from importlib.util import find_spec
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.db import connections, router

from outlast.contrib.django.conf import Settings, discover, read_settings
from outlast.errors import OutlastError

VENDORS = ("postgresql", "sqlite")


def check_settings(**_: Any) -> list[CheckMessage]:
    """Check the setting, and what is known of the database without connecting to it."""
    try:
        own = read_settings()
    except OutlastError as error:
        return [Error(str(error), hint="See docs/howto/django.md.", id="outlast.E001")]
    messages = [message for check in _CHECKS for message in check(own)]
    if messages:
        return messages
    try:
        discover(own)
    except (OutlastError, ImportError) as error:
        return [Error(f"the workflows cannot be imported: {error}", id="outlast.E008")]
    return []


def check_database(*, databases: Collection[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Check that the tables exist; for ``manage.py check --database default``."""
    try:
        own = read_settings()
    except OutlastError:
        return []  # check_settings reports it
    if own.database not in (databases or ()):
        return []
    connection = connections[own.database]
    if connection.vendor not in VENDORS:
        return []
    messages: list[CheckMessage] = []
    if "outlast_events" not in connection.introspection.table_names():
        messages.append(
            Warning(
                f"database {own.database!r} has no tables of outlast yet",
                hint=f"Run `manage.py migrate outlast --database {own.database}`.",
                id="outlast.W002",
            )
        )
    return messages


def _check_vendor(own: Settings) -> Iterator[CheckMessage]:
    vendor = connections[own.database].vendor
    if vendor not in VENDORS:
        yield Error(
            f"database {own.database!r} is {vendor}: outlast works on PostgreSQL and on SQLite",
            hint="Add a PostgreSQL database to DATABASES and name it in OUTLAST['DATABASE'], or run "
            'workflows on a store of their own: outlast.App("sqlite:///…").',
            id="outlast.E002",
        )


def _check_driver(own: Settings) -> Iterator[CheckMessage]:
    connection = connections[own.database]
    if connection.vendor == "postgresql" and connection.Database.__name__ != "psycopg":
        yield Error(
            f"database {own.database!r} uses the driver {connection.Database.__name__}, not psycopg 3",
            hint="Install psycopg 3 (`pip install 'psycopg[binary]'`): Django then uses it.",
            id="outlast.E003",
        )
    if connection.vendor == "postgresql" and find_spec("asyncpg") is None:
        yield Error(
            f"database {own.database!r} is PostgreSQL, and the extra for it is not installed",
            hint="Run `pip install 'outlast[django,postgres]'`.",
            id="outlast.E009",
        )


def _check_autocommit(own: Settings) -> Iterator[CheckMessage]:
    if not connections.settings[own.database].get("AUTOCOMMIT", True):
        yield Error(
            f"database {own.database!r} has AUTOCOMMIT = False: writes of outlast outside of "
            "transaction.atomic() would wait for your next commit",
            hint="Remove AUTOCOMMIT, or give outlast an alias of its own in DATABASES.",
            id="outlast.E004",
        )


def _check_router(own: Settings) -> Iterator[CheckMessage]:
    if not router.allow_migrate(own.database, "outlast"):
        yield Error(
            f"a database router forbids the tables of outlast in {own.database!r}",
            hint="Let allow_migrate() return True or None for app_label 'outlast' there.",
            id="outlast.E005",
        )


def _check_memory(own: Settings) -> Iterator[CheckMessage]:
    connection = connections[own.database]
    if connection.vendor == "sqlite" and not _is_test(connection) and connection.is_in_memory_db():
        yield Error(
            f"database {own.database!r} is a SQLite database in memory: it is lost with the process, and "
            "each thread has another one",
            hint="Name a file.",
            id="outlast.E006",
        )


def _check_isolation(own: Settings) -> Iterator[CheckMessage]:
    connection = connections[own.database]
    level = connections.settings[own.database].get("OPTIONS", {}).get("isolation_level")
    # psycopg.IsolationLevel: 1 read uncommitted, 2 read committed, 3 repeatable read, 4 serializable
    if connection.vendor == "postgresql" and level is not None and int(level) > 2:
        yield Error(
            f"database {own.database!r} has isolation_level = {level}: a statement must see what was "
            "committed while it waited for a lock",
            hint="Use READ COMMITTED, the default, or an alias of its own for outlast.",
            id="outlast.E007",
        )


def _check_mode(own: Settings) -> Iterator[CheckMessage]:
    connection = connections[own.database]
    if connection.vendor != "sqlite" or _is_test(connection):
        return
    mode = connections.settings[own.database].get("OPTIONS", {}).get("transaction_mode")
    if str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE"):
        yield Warning(
            f"database {own.database!r} begins transactions without the write lock: a transaction that "
            "reads first and starts a run later can fail with “database is locked”",
            hint='Set "OPTIONS": {"transaction_mode": "IMMEDIATE"} (and "timeout": 20).',
            id="outlast.W001",
        )


def _is_test(connection: Any) -> bool:
    """Whether this is the database of Django's test runner."""
    return str(connection.settings_dict["NAME"]).startswith("file:memorydb_")


_CHECKS: tuple[Callable[[Settings], Iterator[CheckMessage]], ...] = (
    _check_vendor,
    _check_driver,
    _check_autocommit,
    _check_router,
    _check_memory,
    _check_isolation,
    _check_mode,
)
