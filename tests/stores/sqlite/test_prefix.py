"""Our tables in a file of somebody else's: names with a prefix, and transactions of theirs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.errors import Busy, InvalidValue, NotAStore, RunExists, WorkflowMisuse
from outlast.model import Commit, Committed, Event, Item, Receipt, Run, Send, Task
from outlast.stores._sql.session import named_statements
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import prefixed
from outlast.stores.sqlite.schema import PACKAGE, latest


@pytest.fixture
def user(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of an application, whose tables have names that ours have too."""
    connection = sqlite3.connect(tmp_path / "app.db", isolation_level=None)
    connection.executescript(
        "CREATE TABLE runs (id); CREATE TABLE tasks (id); CREATE INDEX tasks_free ON tasks (id);"
        "PRAGMA user_version = 7"
    )
    yield connection
    connection.close()


def shared(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "app.db", prefix="outlast_")


async def test_nothing_of_ours_is_without_the_prefix(
    user: sqlite3.Connection, tmp_path: Path
) -> None:
    """Tables, indexes and triggers; and the numbers in the file's head stay the application's."""
    before = {name for (name,) in user.execute("SELECT name FROM sqlite_master")}
    async with shared(tmp_path) as store:
        await store.append("r", [Event(type="x", run_id="r")])
        assert await store.last_sequence("r") == 1
    names = {name for (name,) in user.execute("SELECT name FROM sqlite_master")} - before
    assert len(names) > 40
    assert not [name for name in names if name.removeprefix("sqlite_autoindex_")[:8] != "outlast_"]
    assert user.execute("PRAGMA user_version").fetchall() == [(7,)]
    assert user.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    versions = user.execute("SELECT version FROM outlast_migrations").fetchall()
    assert versions[-1] == (latest(),)


async def test_every_statement_means_our_tables(user: sqlite3.Connection, tmp_path: Path) -> None:
    """With only tables that have the prefix in the file, each of them can be prepared."""
    async with shared(tmp_path):
        pass
    user.executescript("DROP TABLE runs; DROP TABLE tasks")
    for sql in named_statements(PACKAGE).values():
        code = "\n".join(line for line in sql.splitlines() if not line.startswith("--"))
        statement = prefixed(code, "outlast_")
        many = [1] * code.count("?")
        named = dict.fromkeys(re.findall(r":(\w+)", code), 1)
        user.execute(f"EXPLAIN {statement}", many or named).fetchall()


@pytest.mark.proves("I12", "I25")
async def test_a_transaction_of_the_user_takes_everything_along(
    user: sqlite3.Connection, tmp_path: Path
) -> None:
    """Run, signal and task are there after its COMMIT, and gone after its ROLLBACK."""
    async with shared(tmp_path) as store:
        await store.append("there", [Event(type="x", run_id="there")])
        for end, there in (("ROLLBACK", False), ("COMMIT", True)):
            user.execute("BEGIN IMMEDIATE")
            borrowed = store.on(user)
            user.execute("INSERT INTO runs VALUES ('theirs')")
            [outcome] = await borrowed.commit([Commit(run_id="new", create=Run(id="new"))])
            assert isinstance(outcome, Committed)
            [refused] = await borrowed.commit([Commit(run_id="there", create=Run(id="there"))])
            assert isinstance(refused, RunExists)
            [receipt] = await borrowed.send(
                [Send(run_id="there", item=Item(kind="signal", name="go"))]
            )
            assert isinstance(receipt, Receipt)
            assert await borrowed.queue().enqueue("mail", [Task(id="t")]) == 1
            assert not await store.exists("new")
            user.execute(end)
            assert await store.exists("new") is there
            assert len(await store.inbox("there")) == there
            assert len(await store.find_available_tasks(queue="mail")) == there
        assert user.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]


async def test_bad_use(user: sqlite3.Connection, tmp_path: Path) -> None:
    """Each says what to do instead."""
    for prefix in ("Big", "sqlite_", "a b", "x" * 31):
        with pytest.raises(InvalidValue, match="prefix"):
            SqliteStore(tmp_path / "app.db", prefix=prefix)
    with pytest.raises(NotAStore, match="prefix='outlast_'"):
        await SqliteStore(tmp_path / "app.db").open()
    async with SqliteStore(tmp_path / "own.db"):
        pass
    with pytest.raises(NotAStore, match="without"):
        await SqliteStore(tmp_path / "own.db", prefix="outlast_").open()
    async with shared(tmp_path) as store:
        with pytest.raises(InvalidValue, match="BEGIN IMMEDIATE"):
            store.on(user)
        user.execute("BEGIN")
        user.execute("SELECT * FROM runs").fetchall()
        await store.append("r", [Event(type="x", run_id="r")])
        with pytest.raises(Busy, match="BEGIN IMMEDIATE"):
            await store.on(user).append("r", [Event(type="y", run_id="r")])
        with pytest.raises(WorkflowMisuse, match="roll back"):
            await store.on(user).close()
        user.execute("ROLLBACK")
