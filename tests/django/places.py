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

from tests.postgres.places import direct

SQLITE, POSTGRES = "default", "postgres"
DATABASES = [
    pytest.param(SQLITE, id="sqlite"),
    pytest.param(POSTGRES, id="postgres", marks=pytest.mark.server),
]
OWN = ("shop_delivery", "shop_order", "shop_payment")
KEPT = ("outlast_migrations", "outlast_counters")


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


def wipe(alias: str) -> None:
    """Empty it."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table in OWN or (table.startswith("outlast_") and table not in KEPT):
                cursor.execute(f"DELETE FROM {table}")
