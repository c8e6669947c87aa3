"""Opening a file: what is made, what is refused, and that nothing foreign is touched."""

# ruff: noqa: ASYNC240 — a test about files may touch them

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from outlast.errors import (
    InvalidValue,
    NotAStore,
    ReadOnlyStore,
    SchemaTooNew,
    StoreClosed,
    StoreFault,
)
from outlast.ports import Durability
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import Connection, Synchronous, connect
from outlast.stores.sqlite.schema import APPLICATION_ID, latest
from tests.stores.sqlite.probes import Other, Probe, event


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Another umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    """The permission bits of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.proves("S27")
@pytest.mark.parametrize("mask", [0o022, 0o000, 0o277])
async def test_only_the_owner_may_read(path: Path, mask: int) -> None:
    """The file, its log and its index have mode 0600, whatever the umask (attack S27)."""
    with umask(mask):
        async with SqliteStore(path) as store:
            await store.append("a", [event("a")])
            files = {file.name: mode_of(file) for file in path.parent.iterdir()}
    assert files == {"runs.db": 0o600, "runs.db-wal": 0o600, "runs.db-shm": 0o600}


async def test_an_existing_mode_is_kept(path: Path) -> None:
    """A file that the user has opened to a group stays so."""
    async with SqliteStore(path):
        pass
    path.chmod(0o640)
    async with SqliteStore(path):
        assert mode_of(path) == 0o640


@pytest.mark.parametrize("synchronous,level", [("full", 2), ("normal", 1)])
@pytest.mark.proves("R-22")
async def test_every_connection_is_set_up(
    path: Path, probe: Probe, synchronous: Synchronous, level: int
) -> None:
    """WAL, the wanted durability, no automatic checkpoints and no mapped memory, on all of them."""
    async with SqliteStore(path, connect=probe.connect, synchronous=synchronous) as store:
        assert store.durability is (
            Durability.POWER_LOSS if synchronous == "full" else Durability.PROCESS_CRASH
        )
        assert len(probe.connections) == 4
        for connection in probe.connections:
            found = [
                connection.execute(f"PRAGMA {name}").fetchall()[0][0]
                for name in ("journal_mode", "synchronous", "wal_autocheckpoint", "mmap_size")
            ]
            assert found == ["wal", level, 0, 0]


@pytest.mark.parametrize(
    "options", [{"synchronous": "off"}, {"log_limit": 0}, {"log_limit": 2, "log_hard_limit": 1}]
)
def test_options_out_of_range(path: Path, options: dict[str, object]) -> None:
    """Settings that would lose data or never checkpoint are refused."""
    with pytest.raises(InvalidValue):
        SqliteStore(path, **options)  # type: ignore[arg-type]


async def test_a_missing_folder(tmp_path: Path) -> None:
    """The error names the folder; it is not made, because a typing error would be hidden."""
    with pytest.raises(InvalidValue, match="missing does not exist"):
        await SqliteStore(tmp_path / "missing" / "runs.db").open()
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    """A path to a folder lacks the name of the file."""
    with pytest.raises(NotAStore, match="is a folder"):
        await SqliteStore(tmp_path).open()


@pytest.mark.parametrize("content", [b"hello", b"name,amount\n" * 500])
async def test_a_file_of_something_else(path: Path, content: bytes) -> None:
    """What is not a database is refused and left as it is."""
    path.write_bytes(content)
    with pytest.raises(NotAStore):
        await SqliteStore(path).open()
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "sql",
    ["CREATE TABLE orders (id)", "PRAGMA user_version = 3", "PRAGMA application_id = 77"],
)
async def test_a_database_of_something_else(path: Path, sql: str) -> None:
    """Another program's database is refused and left as it is, journal mode included."""
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute(sql)
        foreign.commit()
    content = path.read_bytes()
    with pytest.raises(NotAStore, match="not an outlast store"):
        await SqliteStore(path).open()
    assert path.read_bytes() == content


@pytest.mark.proves("I32")
async def test_a_newer_schema(path: Path, other: Other) -> None:
    """A store of a newer outlast is refused, with the advice to upgrade."""
    async with SqliteStore(path):
        pass
    other.connection.execute(f"PRAGMA user_version = {latest() + 1}")
    with pytest.raises(SchemaTooNew, match="Upgrade outlast"):
        await SqliteStore(path).open()


async def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """As a crash between making the file and making the tables leaves it."""
    path.touch()
    async with SqliteStore(path) as store:
        assert await store.append("a", [event("a")]) == 1


async def test_a_database_that_cannot_be_written(path: Path) -> None:
    """A read-only file is refused at once, not at the first commit."""
    async with SqliteStore(path):
        pass

    def read_only(path: str) -> Connection:
        return sqlite3.connect(
            f"file:{path}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )

    with pytest.raises(ReadOnlyStore):
        await SqliteStore(path, connect=read_only).open()


async def test_a_sqlite_that_is_too_old(path: Path) -> None:
    """A build without what we need is named, not met in the middle of a commit."""

    def old(path: str) -> Connection:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.create_function("sqlite_version", 0, lambda: "3.23.1")
        return connection

    with pytest.raises(StoreFault, match=r"3\.23\.1 is too old"):
        await SqliteStore(path, connect=old).open()


async def test_a_failed_opening_leaves_nothing_open(path: Path) -> None:
    """Connections that were made before the refusal are closed."""
    path.write_bytes(b"not a database" * 100)
    opened: list[sqlite3.Connection] = []

    def counted(path: str) -> Connection:
        connection = connect(path)
        assert isinstance(connection, sqlite3.Connection)
        opened.append(connection)
        return connection

    with pytest.raises(NotAStore):
        await SqliteStore(path, connect=counted).open()
    assert len(opened) == 1
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


@pytest.mark.proves("D-05", "M-16")
async def test_open_and_close_again(store: SqliteStore) -> None:
    """Opening twice and closing twice are fine; in between, and only there, calls work."""
    await store.open()
    await store.append("a", [event("a")])
    await store.close()
    await store.close()
    with pytest.raises(StoreClosed):
        await store.find_one("a")
    with pytest.raises(StoreClosed):
        await store.append("a", [event("a")])
    await store.open()
    assert await store.last_sequence("a") == 1


async def test_a_store_opens_at_its_first_call(path: Path) -> None:
    """Many first calls at once open it once."""
    store = SqliteStore(path)
    await asyncio.gather(*(store.append(f"r{n}", [event(f"r{n}")]) for n in range(10)))
    assert len(await store.run_ids()) == 10
    await store.close()


def test_many_processes_make_one_store(path: Path) -> None:
    """Processes that open a new file at the same moment make its tables once, and none fails."""
    script = (
        "import asyncio, sys\n"
        "from outlast.model import Event\n"
        "from outlast.stores.sqlite import SqliteStore\n"
        "async def main(path, run):\n"
        "    sys.stdin.readline()\n"
        "    async with SqliteStore(path) as store:\n"
        "        await store.append(run, [Event(type='x', run_id=run)])\n"
        "asyncio.run(main(sys.argv[1], sys.argv[2]))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(path), f"r{number}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate()[1] for process in processes]
    assert errors == [""] * 4
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(4,)]
        assert connection.execute("PRAGMA application_id").fetchall() == [(APPLICATION_ID,)]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_describe(store: SqliteStore, path: Path) -> None:
    """An operator sees version, race, modes and sizes."""
    facts = store.describe()
    assert facts["path"] == str(path)
    assert facts["sqlite_version"] == sqlite3.sqlite_version
    assert isinstance(facts["wal_reset_race"], bool)
    assert facts["journal_mode"] == "wal"
    assert facts["synchronous"] == "full"
    assert facts["schema_version"] == latest()
    assert facts["wal_bytes"] == path.with_name("runs.db-wal").stat().st_size
