"""When the database fails: typed errors, nothing half written, and a store that goes on."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from outlast.errors import (
    Busy,
    InvalidValue,
    NotAStore,
    OutlastError,
    PayloadTooLarge,
    ReadOnlyStore,
    StoreClosed,
    StoreFault,
    StoreFull,
    Undecodable,
    UnknownOutcome,
    UnsafeStorage,
)
from outlast.model import Committed, Fact
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.driver_errors import Collision, translate
from tests.stores.sqlite.probes import Other, Probe, event

FILE = Path("/nowhere/runs.db")


def error_of(code: int) -> sqlite3.OperationalError:
    """What sqlite3 raises for a result code."""
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    "code,kind",
    [
        (sqlite3.SQLITE_BUSY, Busy),
        (sqlite3.SQLITE_BUSY_RECOVERY, Busy),
        (sqlite3.SQLITE_LOCKED, Busy),
        (sqlite3.SQLITE_PROTOCOL, Busy),
        (sqlite3.SQLITE_FULL, StoreFull),
        (sqlite3.SQLITE_READONLY, ReadOnlyStore),
        (sqlite3.SQLITE_READONLY_DIRECTORY, ReadOnlyStore),
        (sqlite3.SQLITE_PERM, ReadOnlyStore),
        (sqlite3.SQLITE_NOTADB, NotAStore),
        (sqlite3.SQLITE_CORRUPT, Undecodable),
        (sqlite3.SQLITE_TOOBIG, PayloadTooLarge),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, Collision),
        (sqlite3.SQLITE_IOERR, StoreFault),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreFault),
        (sqlite3.SQLITE_ERROR, StoreFault),
        (sqlite3.SQLITE_NOMEM, StoreFault),
    ],
)
@pytest.mark.proves("S-09", "K-15")
def test_every_result_code_has_a_type(code: int, kind: type[Exception]) -> None:
    """Callers branch on our types; SQLite's words are kept for people."""
    fault = translate(error_of(code), FILE)
    assert type(fault) is kind
    assert isinstance(fault, OutlastError)
    assert "it failed" in str(fault)


def test_an_error_of_apsw_is_understood() -> None:
    """Another driver says the code under another name."""

    class FullError(Exception):
        extendedresult = sqlite3.SQLITE_FULL

    assert isinstance(translate(FullError("full"), FILE), StoreFull)


def test_a_closed_connection() -> None:
    """Whoever is late by a moment is told that the store is closed."""
    connection = sqlite3.connect(":memory:")
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError) as late:
        connection.execute("SELECT 1")
    assert isinstance(translate(late.value, FILE), StoreClosed)


@pytest.mark.parametrize("value", [2**70, "\ud800", object()])
def test_a_value_that_the_driver_refuses(value: object) -> None:
    """Numbers over 64 bits, lone surrogates and other objects are the caller's mistake."""
    refusals = (OverflowError, UnicodeEncodeError, sqlite3.Error)
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(refusals) as refused:
        connection.execute("SELECT ?", (value,))
    assert isinstance(translate(refused.value, FILE), InvalidValue)


@pytest.mark.parametrize("error", [ValueError("a bug"), KeyError("x"), StoreClosed("closed")])
def test_other_errors_are_not_touched(error: Exception) -> None:
    """A bug of ours is not dressed up as a fault of the database."""
    assert translate(error, FILE) is None


# -- no space -------------------------------------------------------------------------------------


@pytest.mark.proves("I12", "K-13")
async def test_a_full_database(store: SqliteStore, probe: Probe, other: Other) -> None:
    """When there is no space nothing of the write remains, and with some space all goes on."""
    await store.append("a", [event("a")])
    pages = other.ask("PRAGMA page_count")[0][0]
    writer = probe.connections[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 5}").fetchall()
    with pytest.raises(StoreFull):
        await store.append("a", [event("a", metadata={"x": "y" * 100_000})])
    with pytest.raises(StoreFull):
        await store.put_fact(Fact.of(os.urandom(100_000)))
    assert await store.last_sequence("a") == 1
    writer.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert await store.append("a", [event("a")]) == 2
    assert other.ask("PRAGMA integrity_check") == [("ok",)]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes, where the test may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "outlast-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a filesystem: only root may, where the system lets it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.proves("I3", "I12")
async def test_a_full_disk(tiny_disk: Path, inline: bool) -> None:
    """On a disk that really is full, what was acknowledged stays and the rest never was."""
    async with SqliteStore(tiny_disk / "runs.db", inline=inline) as store:
        acknowledged: list[int] = []
        with pytest.raises(StoreFull):
            await _append_for_ever(store, acknowledged)
        appended = len(acknowledged)
        assert appended > 10
        assert await store.last_sequence("a") == appended
        assert len(await store.history("a")) == appended
        with pytest.raises(StoreFull):
            await store.append("a", [event("a", metadata={"x": "y" * 100_000})])
    async with SqliteStore(tiny_disk / "runs.db") as store:
        assert await store.last_sequence("a") == appended


async def _append_for_ever(store: SqliteStore, acknowledged: list[int]) -> None:
    while True:
        sequence = await store.append("a", [event("a", metadata={"x": "y" * 20_000})])
        acknowledged.append(sequence)


async def test_a_disk_that_becomes_read_only(tiny_disk: Path) -> None:
    """As after an error of the device: reads go on, writes say what is wrong, and so does opening."""
    async with SqliteStore(tiny_disk / "runs.db") as store:
        await store.append("a", [event("a")])
    remount = ["mount", "-o", "remount,ro", str(tiny_disk)]
    subprocess.run(remount, check=True)  # noqa: ASYNC221
    with pytest.raises(ReadOnlyStore):
        await SqliteStore(tiny_disk / "runs.db").open()
    with pytest.raises(ReadOnlyStore):
        await SqliteStore(tiny_disk / "new.db").open()


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.proves("I3")
async def test_a_file_that_is_gone(path: Path, inline: bool, replaced: bool) -> None:
    """A file that was deleted, or replaced by another, takes no commit that nobody would find."""
    async with SqliteStore(path, inline=inline) as store:
        await store.append("a", [event("a")])
        for file in path.parent.glob(f"{path.name}*"):
            file.rename(file.with_name(f"old-{file.name}"))
        if replaced:
            async with SqliteStore(path) as other:
                await other.append("b", [event("b")])
        with pytest.raises(UnsafeStorage, match="deleted, moved or replaced while it was open"):
            await store.append("a", [event("a")])
        assert await store.last_sequence("a") == 1


@pytest.mark.parametrize("left", [0, 4096])
@pytest.mark.proves("I3")
async def test_a_file_that_is_truncated(path: Path, inline: bool, left: int) -> None:
    """A file that was cut while it was open takes no commit and hands out no run; an empty one whose
    log is left does not become a new store in silence."""
    async with SqliteStore(path, inline=inline) as store:
        await store.append("a", [event("a")])
        await store.checkpoint()
        await store.append("a", [event("a")])
        log = path.with_name(f"{path.name}-wal").read_bytes()
        os.truncate(path, left)
        with pytest.raises(UnsafeStorage, match="truncated while it was open"):
            await store.append("a", [event("a")])
        with pytest.raises(UnsafeStorage, match="truncated while it was open"):
            await store.claim_runs("w", 60)
    os.truncate(path, 0)
    path.with_name(f"{path.name}-wal").write_bytes(log)
    with pytest.raises(UnsafeStorage, match="restore the file"):
        await SqliteStore(path, inline=inline).open()


# -- errors in the middle -------------------------------------------------------------------------


def failing(code: int) -> Callable[[], None]:
    """Something that fails with a result code."""

    def fail() -> None:
        raise error_of(code)

    return fail


async def test_an_error_before_the_commit(store: SqliteStore, probe: Probe) -> None:
    """Whatever fails on the way is rolled back: nothing was written."""
    await store.append("a", [event("a")])
    probe.before("INSERT INTO events", failing(sqlite3.SQLITE_IOERR))
    with pytest.raises(StoreFault):
        await store.append("a", [event("a")])
    probe.before("INSERT INTO events", lambda: None)
    assert await store.append("a", [event("a")]) == 2


@pytest.mark.parametrize(
    "code,kind",
    [(sqlite3.SQLITE_FULL, StoreFull), (sqlite3.SQLITE_IOERR_FSYNC, UnknownOutcome)],
)
@pytest.mark.proves("C-20", "I3")
async def test_an_error_of_the_commit_itself(
    store: SqliteStore, probe: Probe, code: int, kind: type[Exception]
) -> None:
    """If the last sync fails, a crash may bring the commit back: nobody knows. A full disk is
    sure to have refused it."""
    await store.append("a", [event("a")])
    probe.before("COMMIT", failing(code))
    with pytest.raises(kind):
        await store.append("a", [event("a")])
    probe.before("COMMIT", lambda: None)
    assert await store.append("a", [event("a")]) == 2


@pytest.mark.parametrize("statement", ["SELECT key", "INSERT INTO events", "COMMIT"])
async def test_an_interrupt_in_the_middle(path: Path, probe: Probe, statement: str) -> None:
    """Ctrl-C in the event loop rolls back and leaves the writer free."""
    async with SqliteStore(path, connect=probe.connect) as store:
        await store.append("a", [event("a")])

        def interrupt() -> None:
            raise KeyboardInterrupt

        probe.before(statement, interrupt)
        with pytest.raises(KeyboardInterrupt):
            await store.append("a", [event("a")])
        probe.before(statement, lambda: None)
        assert await store.append("a", [event("a")]) == 2


# -- damage ---------------------------------------------------------------------------------------


async def test_a_damaged_file(path: Path, inline: bool) -> None:
    """Pages of zeros are noticed and reported as damage, not as an empty history."""
    async with SqliteStore(path) as store:
        for number in range(50):
            await store.append(f"r{number}", [event(f"r{number}", metadata={"x": "y" * 3000})])
    content = bytearray(path.read_bytes())  # noqa: ASYNC240
    half = len(content) // 2  # the second, behind the schema
    content[half:] = bytes(len(content) - half)
    path.write_bytes(content)  # noqa: ASYNC240
    with pytest.raises(StoreFault):
        async with SqliteStore(path, inline=inline) as store:
            await _read_all(store)


async def _read_all(store: SqliteStore) -> None:
    for number in range(50):
        await store.get(f"r{number}")
        await store.history(f"r{number}")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET status = 'sleeping'",
        "UPDATE runs SET created_at = 1000000000000000000",
        "INSERT INTO run_values (key, ctx) VALUES (1, x'ff00ff')",
        "INSERT INTO run_details (key, attributes) VALUES (1, '{\"a\": [1]}')",
        "INSERT INTO run_details (key, version) VALUES (1, 'no json')",
    ],
)
async def test_a_damaged_record(store: SqliteStore, other: Other, sql: str) -> None:
    """A row that somebody tampered with is a typed error, and can be deleted (attack S28)."""
    await store.append("a", [event("a")])
    other.connection.execute(sql)
    with pytest.raises(Undecodable):
        await store.get("a")
    assert await store.delete("a")
    assert await store.find_one("a") is None


@pytest.mark.parametrize(
    "sql",
    ["UPDATE events SET metadata = '[1'", "UPDATE events SET timestamp = 1000000000000000000"],
)
async def test_a_damaged_history(store: SqliteStore, other: Other, sql: str) -> None:
    """The same for events (attack S28)."""
    await store.append("a", [event("a")])
    other.connection.execute(sql)
    with pytest.raises(Undecodable):
        await store.history("a")


async def test_record_and_history_disagree(store: SqliteStore, other: Other) -> None:
    """A record that forgot its last events does not write over them."""
    await store.append("a", [event("a"), event("a")])
    other.connection.execute("UPDATE runs SET sequence = 1")
    with pytest.raises(Undecodable, match="contradict"):
        await store.append("a", [event("a")])
    assert len(await store.history("a")) == 2


async def test_a_poisoned_batch_is_not_written(store: SqliteStore) -> None:
    """A value that only the driver refuses harms the whole batch, but leaves nothing behind."""
    with pytest.raises(InvalidValue):
        await store.append("a", [event("a"), event("a", version=2**70)])
    assert await store.find_one("a") is None
    outcome = await store.append("a", [event("a")])
    assert not isinstance(outcome, Committed)
    assert outcome == 1
