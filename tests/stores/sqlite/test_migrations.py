"""The schema: numbered steps, each applied once and whole."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from outlast.errors import StoreFault
from outlast.stores._sql.session import Migration
from outlast.stores.sqlite import SqliteStore, schema
from outlast.stores.sqlite.schema import APPLICATION_ID, latest, migrations, statements_of
from tests.stores.sqlite.probes import Other, event

SECOND = Migration(
    latest() + 1,
    "CREATE TABLE labels (run_key INTEGER, label TEXT);\n"
    "CREATE INDEX by_label ON labels (label);\n",
)
BROKEN = Migration(
    latest() + 1, "CREATE TABLE labels (run_key INTEGER);\nCREATE TABLE runs (again);\n"
)


def tables(other: Other) -> set[str]:
    """The names of the tables."""
    return {name for (name,) in other.ask("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_steps_are_numbered() -> None:
    """1, 2, 3 … without a gap: a number is never used again."""
    assert [migration.version for migration in migrations()] == list(range(1, latest() + 1))
    assert all(statements_of(migration) for migration in migrations())


async def test_a_new_store_says_what_it_is(path: Path, other: Other) -> None:
    """Its head tells other programs whose it is, and us how old it is."""
    async with SqliteStore(path):
        pass
    assert other.ask("PRAGMA application_id") == [(APPLICATION_ID,)]
    assert other.ask("PRAGMA user_version") == [(latest(),)]


@pytest.mark.proves("I32")
async def test_an_older_store_is_brought_up_to_date(
    path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening applies what is missing, and the data stays."""
    async with SqliteStore(path) as store:
        await store.append("a", [event("a")])
    first = migrations()
    monkeypatch.setattr(schema, "migrations", lambda: (*first, SECOND))
    async with SqliteStore(path) as store:
        assert await store.last_sequence("a") == 1
        assert store.describe()["schema_version"] == SECOND.version
    assert "labels" in tables(other)
    async with SqliteStore(path):
        pass
    assert other.ask("PRAGMA user_version") == [(SECOND.version,)]


@pytest.mark.proves("I12", "I32")
async def test_a_step_that_fails_leaves_nothing(
    path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration is applied whole or not at all, and the store of before can be opened."""
    async with SqliteStore(path) as store:
        await store.append("a", [event("a")])
    first = migrations()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "migrations", lambda: (*first, BROKEN))
        with pytest.raises(StoreFault):
            await SqliteStore(path).open()
    assert "labels" not in tables(other)
    assert other.ask("PRAGMA user_version") == [(latest(),)]
    async with SqliteStore(path) as store:
        assert await store.last_sequence("a") == 1


async def test_two_stores_migrate_at_once(
    path: Path, other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second waits for the first and finds nothing left to do."""
    async with SqliteStore(path):
        pass
    first = migrations()
    monkeypatch.setattr(schema, "migrations", lambda: (*first, SECOND))
    stores = [SqliteStore(path) for _ in range(4)]
    await asyncio.gather(*(store.open() for store in stores))
    assert other.ask("PRAGMA user_version") == [(SECOND.version,)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_opening_waits_for_a_migration_of_another(path: Path, other: Other) -> None:
    """While another process holds the lock, a store with nothing to change opens all the same."""
    async with SqliteStore(path):
        pass
    other.lock()
    async with SqliteStore(path) as store:
        assert await store.find_one("a") is None
    other.unlock()


def test_a_migration_is_split_at_its_statements() -> None:
    """Each statement of the files stands on its own; SQLite takes one at a time."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for migration in migrations():
        for statement in statements_of(migration):
            connection.execute(statement)
    count = connection.execute("SELECT count(*) FROM sqlite_master WHERE sql IS NOT NULL")
    assert count.fetchall()[0][0] > 30
    connection.close()
