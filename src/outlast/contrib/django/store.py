"""Which store: on PostgreSQL or SQLite, for the calling thread or for a worker."""

from __future__ import annotations

from functools import lru_cache

import msgspec
from django.db import connections

from outlast.contrib.django.conf import Settings, read_settings
from outlast.errors import InvalidValue
from outlast.ports.clock import Clock
from outlast.ports.store import Store


def store_here(settings: Settings) -> Store:
    """The store on the connection of the calling thread, in its transaction."""
    alias = settings.database
    return _store_here(connections[alias].vendor, alias, settings.schema)


def worker_store(settings: Settings, *, clock: Clock | None = None) -> Store:
    """The store for a worker, which has an event loop and transactions of its own."""
    alias = settings.database
    match connections[alias].vendor:
        case "postgresql":
            from outlast.contrib.django.postgres import DjangoPostgresStore

            return DjangoPostgresStore(alias, schema=settings.schema, clock=clock)
        case "sqlite":
            from outlast.contrib.django.sqlite import DjangoSqliteStore

            return DjangoSqliteStore(alias, clock=clock)
        case vendor:
            raise _neither(alias, vendor)


def store_at(url: str, *, clock: Clock | None = None) -> Store:
    """The store that a URL names: ``django:`` or ``django:alias``, in a process that knows its
    settings (DJANGO_SETTINGS_MODULE)."""
    import django
    from django.apps import apps

    if not apps.ready:
        django.setup()
    settings = read_settings()
    alias = url.partition(":")[2] or settings.database
    if alias not in connections.settings:
        raise InvalidValue(f"DATABASES has no {alias!r}: use django:{settings.database}")
    return worker_store(msgspec.structs.replace(settings, database=alias), clock=clock)


@lru_cache
def _store_here(vendor: str, alias: str, schema: str) -> Store:
    match vendor:
        case "postgresql":
            from outlast.contrib.django.postgres import PostgresHere

            return PostgresHere(alias, schema)
        case "sqlite":
            from outlast.contrib.django.sqlite import SqliteHere

            return SqliteHere(alias)
        case _:
            raise _neither(alias, vendor)


def _neither(alias: str, vendor: str) -> InvalidValue:
    return InvalidValue(
        f"database {alias!r} is {vendor}: outlast works on PostgreSQL and on SQLite. Name such a one "
        "in OUTLAST['DATABASE']"
    )
