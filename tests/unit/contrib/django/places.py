"""The two databases of the tests: made once in a process, emptied for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from django.test import override_settings

from outlast.stores.sqlite.connection import tables as sqlite_tables
from tests.stores.postgres.places import TABLES, direct

SQLITE, POSTGRES = "default", "postgres"
DATABASES = [
    pytest.param(SQLITE, id="sqlite"),
    pytest.param(POSTGRES, id="postgres", marks=pytest.mark.server),
]
OWN = ("shop_delivery", "shop_order", "shop_payment")
KEPT = ("migrations", "counters")


@cache
def made(alias: str) -> str:
    """The database, with the tables of all apps."""
    if alias == POSTGRES:
        name = f"django_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        with psycopg.connect(direct(), autocommit=True) as server:
            server.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
            server.execute(f'CREATE DATABASE "{name}"'.encode())
    with use(alias):
        call_command("migrate", database=alias, verbosity=0)
    connections[alias].close()
    return alias


@contextmanager
def use(alias: str, **more: object) -> Iterator[None]:
    """Let a database be outlast's."""
    with override_settings(OUTLAST={"DATABASE": alias, **more}):
        yield


@contextmanager
def another(alias: str, options: dict[str, object]) -> Iterator[str]:
    """One more database for a while."""
    given = connections.configure_settings({"default": {}, alias: options})
    connections.settings[alias] = given[alias]
    try:
        yield alias
    finally:
        if connections[alias].connection is not None:
            connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


def wipe(alias: str) -> None:
    """Empty it."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if alias == SQLITE:
            tables = [f"outlast_{name}" for name in sqlite_tables() if name not in KEPT]
        else:
            tables = [f"outlast_{name}" for name in TABLES.split()]  # triggers see to the others
        for table in [*tables, *OWN]:
            cursor.execute(f"DELETE FROM {table}")


def wipe_and_leave(alias: str) -> None:
    """Empty it, from a thread that does nothing else."""
    made(alias)
    wipe(alias)
    connections[alias].close()
