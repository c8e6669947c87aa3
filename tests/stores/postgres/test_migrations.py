"""The schema: migrations, each applied once and whole, and functions that a newer release replaces."""

from __future__ import annotations

import asyncio
import re
import sys
from importlib.resources import files

import pytest

from outlast.errors import SchemaTooNew, StoreFault
from outlast.model import Event
from outlast.stores._sql.session import Migration
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres import schema as steps
from outlast.stores.postgres.schema import Functions, functions, latest, migrations
from tests.stores.postgres.places import ask, direct, pooled

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


def test_migrations_are_numbered() -> None:
    """1, 2, 3 … without a gap."""
    assert [migration.version for migration in migrations()] == list(range(1, latest() + 1))


@pytest.mark.proves("I32")
async def test_ten_processes_migrate_at_once(schema: str) -> None:
    """One creates the tables, the others wait and find them; half connect through a pooler."""
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
    """Opening applies missing migrations while other processes continue, and the data stays."""
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
async def test_a_migration_that_fails_leaves_nothing(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Migrations are applied whole or not at all, and the store can be opened as before."""
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


def released(release: tuple[int, ...], now: str) -> Functions:
    """The functions of a release whose clock stands at `now`."""
    script = (
        functions().script
        + "CREATE OR REPLACE FUNCTION @now(at bigint, shift bigint) RETURNS bigint "
        + f"LANGUAGE sql VOLATILE AS $$ SELECT {now}::bigint $$;"
    )
    return Functions(release, now, script)


@pytest.mark.proves("I32")
async def test_a_newer_release_replaces_the_functions(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a store installs them once; a process of the release before calls the new ones."""
    async with at(schema) as older:
        newer = released((999,), "1000000")
        with monkeypatch.context() as patch:
            patch.setattr(steps, "functions", lambda: newer)
            for _ in range(2):
                async with at(schema) as store:
                    assert (await store.now()).timestamp() == 1
        installed = await ask(f'SELECT release, hash FROM "{schema}".installed_functions')
        assert [tuple(row) for row in installed] == [([999], newer.hash)]
        assert (await older.now()).timestamp() == 1


@pytest.mark.proves("I32")
async def test_an_older_release_keeps_newer_functions(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two releases on one database do not keep replacing each other's functions."""
    with monkeypatch.context() as patch:
        patch.setattr(steps, "functions", lambda: released((999,), "1000000"))
        async with at(schema):
            pass
    async with at(schema) as older:
        assert (await older.now()).timestamp() == 1
    [[release]] = await ask(f'SELECT release FROM "{schema}".installed_functions')
    assert release == [999]


async def test_another_build_of_the_same_release_replaces_the_functions(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In development the process that opened the store last decides."""
    with monkeypatch.context() as patch:
        patch.setattr(steps, "functions", lambda: released(functions().release, "1000000"))
        async with at(schema):
            pass
    async with at(schema) as store:
        assert (await store.now()).timestamp() > 1_000_000


def test_each_function_has_a_file_of_its_own() -> None:
    """A file is named after the function that it defines, and describes it first."""
    folder = files("outlast.stores.postgres").joinpath("functions")
    for file in folder.iterdir():
        text = file.read_text(encoding="utf-8")
        assert re.findall(r"^CREATE OR REPLACE FUNCTION @(\w+)\(", text, re.MULTILINE) == [
            file.name.removesuffix(".sql")
        ]
        assert text.startswith("-- "), file.name
