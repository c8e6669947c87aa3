"""A newer SQLite under the name of the old, for those who need one: DBOS wants 3.42."""

# mypy: ignore-errors
from __future__ import annotations

import sys

try:
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3
except ImportError:
    pass

import sqlite3

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


def settings(file: str) -> str:
    """How durable a file is for a connection that was told nothing."""
    connection = sqlite3.connect(file)
    [[journal]] = connection.execute("PRAGMA journal_mode").fetchall()
    [[synchronous]] = connection.execute("PRAGMA synchronous").fetchall()
    connection.close()
    version = sqlite3.sqlite_version
    return f"SQLite {version}, JOURNAL {journal.upper()}, SYNCHRONOUS={SYNCHRONOUS[synchronous]}"


def launch(dbos, place: str) -> str:
    """Launch DBOS on a file in WAL mode, which is faster for it, or on a database in PostgreSQL; how
    durable that is."""
    on_postgres = place.startswith("postgresql:")
    if not on_postgres:
        connection = sqlite3.connect(place)
        connection.execute("PRAGMA journal_mode = wal").fetchall()
        connection.close()
    url = place if on_postgres else f"sqlite:///{place}"
    dbos(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    dbos.launch()
    return "PostgreSQL, as it comes" if on_postgres else settings(place)
