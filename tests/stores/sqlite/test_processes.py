"""Several processes on one file, and a process that forks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from outlast.errors import Conflict, Fenced, OutlastError, StoreClosed
from outlast.model import Change, Commit, Run
from outlast.model.times import NOW
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.sqlite.probes import event


@pytest.fixture
async def second(path: Path, clock: ManualClock, store: SqliteStore) -> AsyncIterator[SqliteStore]:
    """Another store on the same file: it shares nothing with the first but the disk."""
    async with SqliteStore(path, clock=clock) as second:
        yield second


@pytest.mark.proves("S-15", "S-19")
async def test_two_stores_see_each_other(store: SqliteStore, second: SqliteStore) -> None:
    """What one has committed, the other reads at once, and appends to."""
    assert await store.append("a", [event("a")]) == 1
    assert await second.append("a", [event("a")], expected=1) == 2
    with pytest.raises(Conflict):
        await store.append("a", [event("a")], expected=1)
    assert [one.sequence for one in await store.history("a")] == [1, 2]


@pytest.mark.proves("S-12", "S-17", "I5", "I6")
async def test_two_stores_never_claim_the_same_run(store: SqliteStore, second: SqliteStore) -> None:
    """Claims are exclusive between them, and tokens grow over both, deletes included."""
    runs = [
        Commit(run_id=f"r{n}", create=Run(id=f"r{n}"), change=Change(runnable_at=NOW))
        for n in range(40)
    ]
    await store.commit(runs)
    claimed = await asyncio.gather(
        *(one.claim_runs("w", 60) for _ in range(20) for one in (store, second))
    )
    ids = [found.run.id for batch in claimed for found in batch]
    tokens = [found.claim.token for batch in claimed for found in batch]
    assert sorted(ids) == sorted(f"r{n}" for n in range(40))
    assert len(set(tokens)) == 40
    await store.delete("r0")
    await second.commit([Commit(run_id="r0", create=Run(id="r0"), change=Change(runnable_at=NOW))])
    (again,) = await second.claim_runs("w", 60)
    assert again.claim.token > max(tokens)


@pytest.mark.proves("I5", "C-28")
async def test_a_claim_taken_over_by_another_store(
    store: SqliteStore, second: SqliteStore, clock: ManualClock
) -> None:
    """The owner who slept too long is fenced by the one who took over in another process."""
    await store.commit([Commit(run_id="a", create=Run(id="a", runnable_at=NOW))])
    (slow,) = await store.claim_runs("slow", 10)
    clock.advance(11)
    (fast,) = await second.claim_runs("fast", 10)
    with pytest.raises(Fenced):
        await store.append("a", [event("a")], token=slow.claim.token)
    assert await second.append("a", [event("a")], token=fast.claim.token) == 1


WORK = """
import asyncio, sys
from outlast.model import Event
from outlast.stores.sqlite import SqliteStore

async def main(path, number):
    sys.stdin.readline()
    async with SqliteStore(path) as store:
        for _ in range(50):
            await store.append("shared", [Event(type="x", run_id="shared", step_name=number)])

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.mark.proves("I1", "I3", "K-08", "K-12")
def test_many_processes_append_to_one_run(path: Path) -> None:
    """Every acknowledged event is there, in a history without gap, and the file is sound."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, str(path), str(number)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[1] for process in processes] == [""] * 3
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT count(*), max(sequence), count(DISTINCT sequence) FROM events"
        ).fetchall()
        each = connection.execute("SELECT count(*) FROM events GROUP BY step_name").fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert rows == [(150, 150, 150)]
    assert each == [(50,)] * 3


async def test_a_store_does_not_survive_a_fork(store: SqliteStore) -> None:
    """A child is told to open its own; the parent does not notice anything."""
    await store.append("a", [event("a")])
    queue = store.queue()
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        # Python itself warns of forking with threads: that is what is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(sending, _names_of_errors(store, queue).encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(child, 0)  # noqa: ASYNC222
    with os.fdopen(receiving) as answer:
        assert answer.read() == "StoreClosed StoreClosed QueueClosed closed"
    assert await store.append("a", [event("a")]) == 2


def _names_of_errors(store: SqliteStore, queue: object) -> str:
    from outlast.errors import Closed
    from outlast.stores.sqlite import SqliteQueue

    assert isinstance(queue, SqliteQueue)

    async def names() -> str:
        found = []
        for call in (store.find_one("a"), store.append("a", [event("a")]), queue.len("q")):
            try:
                await call
                found.append("nothing")
            except Closed as error:
                found.append(type(error).__name__)
        await store.close()
        return " ".join([*found, "closed"])

    # The loop of the parent is still marked as running in this thread.
    asyncio._set_running_loop(None)
    return asyncio.new_event_loop().run_until_complete(names())


@pytest.mark.proves("I3")
async def test_a_child_cannot_open_what_was_open_when_it_was_forked(
    store: SqliteStore, path: Path
) -> None:
    """SQLite would count on the parent's locks: when the parent closes it checkpoints the log away under
    the child, and what the child commits then is in a file without a name."""
    await store.append("a", [event("a")])
    receiving, sending = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.write(sending, _opened_anew(path).encode())
        os._exit(0)
    os.close(sending)
    os.waitpid(child, 0)  # noqa: ASYNC222
    with os.fdopen(receiving) as answer:
        same, another = answer.read().splitlines()
    assert same.startswith("UnsafeStorage")
    assert "Open stores and apps after the fork" in same
    assert another == "opened"


def _opened_anew(path: Path) -> str:
    async def opened(path: Path) -> str:
        try:
            async with SqliteStore(path) as store:
                await store.append("b", [event("b")])
        except OutlastError as error:
            return f"{type(error).__name__}: {error}"
        return "opened"

    asyncio._set_running_loop(None)
    loop = asyncio.new_event_loop()
    paths = (path, path.with_name("another.db"))
    return "\n".join(loop.run_until_complete(opened(one)) for one in paths)


async def test_the_message_after_a_fork(store: SqliteStore) -> None:
    """It says what to do."""
    state = store._session.database.opened()
    store._session.database._state = state._replace(pid=-1)
    with pytest.raises(StoreClosed, match="open stores and apps after the fork"):
        await store.find_one("a")
    store._session.database._state = state
