"""The schema: numbered steps, each applied once and whole."""

from __future__ import annotations

import asyncio
import sys

import pytest

from outlast.errors import SchemaTooNew, StoreFault
from outlast.model import Event
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres import schema as steps
from outlast.stores.postgres.schema import Migration, latest, migrations
from tests.postgres.places import ask, direct, pooled

pytestmark = pytest.mark.server

SCRIPT = """
import asyncio, sys
from outlast.stores.postgres import PostgresStore

async def main():
    async with PostgresStore(sys.argv[1], schema=sys.argv[2], notify=False) as store:
        assert await store.find_one("r") is None

asyncio.run(main())
"""


def at(schema: str) -> PostgresStore:
    """A store in a schema of its own."""
    return PostgresStore(direct(), schema=schema, notify=False)


async def tables(schema: str) -> set[str]:
    """The names of the tables of a schema."""
    rows = await ask("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
    return {name for (name,) in rows}


def test_the_steps_are_numbered() -> None:
    """1, 2, 3 … without a gap: a number is never used again."""
    assert [migration.version for migration in migrations()] == list(range(1, latest() + 1))


@pytest.mark.proves("I32")
async def test_ten_processes_migrate_at_once(schema: str) -> None:
    """One makes the tables, the others wait and find them made; half come through a pooler."""
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SCRIPT, (direct, pooled)[n % 2](), schema),
            stderr=asyncio.subprocess.PIPE,
        )
        for n in range(10)
    ]
    for process in processes:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    versions = await ask(f'SELECT version FROM "{schema}".migrations ORDER BY version')
    assert [version for (version,) in versions] == list(range(1, latest() + 1))


@pytest.mark.proves("I32")
async def test_an_older_store_is_brought_up_to_date(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening applies what is missing while others work on, and the data stays."""
    async with at(schema) as older:
        await older.append("a", [Event(type="x", run_id="a")])
        more = Migration(latest() + 1, "CREATE TABLE @labels (run_key bigint, label text)")
        first = migrations()
        monkeypatch.setattr(steps, "migrations", lambda: (*first, more))
        async with at(schema) as newer:
            assert await newer.last_sequence("a") == 1
        assert await older.append("a", [Event(type="x", run_id="a")]) == 2
    assert "labels" in await tables(schema)


@pytest.mark.proves("I12", "I32")
async def test_a_step_that_fails_leaves_nothing(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps are applied whole or not at all, and the store of before can be opened."""
    async with at(schema):
        pass
    broken = Migration(latest() + 1, "CREATE TABLE @labels (a int); CREATE TABLE @runs (again int)")
    first = migrations()
    with monkeypatch.context() as patch:
        patch.setattr(steps, "migrations", lambda: (*first, broken))
        with pytest.raises(StoreFault):
            await at(schema).open()
    assert "labels" not in await tables(schema)
    async with at(schema) as store:
        assert await store.find_one("a") is None


@pytest.mark.proves("I32")
async def test_a_newer_schema_is_refused(schema: str) -> None:
    """An old process does not write to tables that it does not know."""
    async with at(schema):
        pass
    await ask(f'INSERT INTO "{schema}".migrations (version) VALUES (999)')
    with pytest.raises(SchemaTooNew, match="Upgrade"):
        await at(schema).open()
