"""Stores of ours by where they are: what is measured opens them in processes of its own."""

from __future__ import annotations

from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.postgres import PostgresStore
from outlast.stores.redis import RedisStore
from outlast.stores.sqlite import SqliteStore
from outlast.urls import resolve

STORES = ("SQLite", "PostgreSQL", "Redis")


def store_at(place: str) -> Store:
    """The store at a URL; of Redis, with its prefix behind a `#`."""
    url, _, prefix = place.partition("#")
    return RedisStore(url, prefix=prefix) if prefix else resolve(url)


def settings_of(store: Store) -> str:
    """What an open store promises, by its own account."""
    if isinstance(store, MemoryStore):
        return "memory, not durable"
    assert isinstance(store, SqliteStore | PostgresStore | RedisStore)
    known = store.describe()
    match store:
        case SqliteStore():
            mode = f"journal {known['journal_mode']}, synchronous={known['synchronous']}"
            return f"SQLite {known['sqlite_version']}, {mode.upper()}"
        case PostgresStore():
            version = str(known["postgres_version"])
            synced = f"fsync={known['fsync']}, synchronous_commit={known['synchronous_commit']}"
            return f"PostgreSQL {version.split(maxsplit=1)[0]}, {synced}"
        case _:
            return f"Redis {known['version']}, appendfsync {known['fsync']}"
