"""The write-ahead log: checkpointed in time, only under the writer's lock, and bounded."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from outlast.errors import TimedOut
from outlast.model import Fact, RunQuery, Task
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.wal import has_reset_race
from tests.stores.sqlite.probes import Other, Probe, event

LIMIT = 100_000
HARD_LIMIT = 1_500_000
CHECKPOINT = "PRAGMA wal_checkpoint"


@pytest.fixture
async def small(path: Path, probe: Probe, inline: bool) -> AsyncIterator[SqliteStore]:
    """A store whose log may not grow much."""
    async with SqliteStore(
        path, connect=probe.connect, inline=inline, log_limit=LIMIT, log_hard_limit=HARD_LIMIT
    ) as store:
        yield store


def log_size(path: Path) -> int:
    """Bytes in the log."""
    return path.with_name(f"{path.name}-wal").stat().st_size


async def write(store: SqliteStore, kilobytes: int, **options: float) -> None:
    """Add so much to the log."""
    for _ in range(kilobytes // 10):
        await store.put_fact(Fact.of(os.urandom(10_000)), **options)


async def settled(store: SqliteStore) -> None:
    """Wait for what the writer's thread has to do still: it does one thing after the other."""
    await store._session.database.opened().writer.run(lambda db: None, small=False, timeout=60)


@pytest.mark.proves("I31")
async def test_the_log_stays_small(small: SqliteStore, path: Path) -> None:
    """It is checkpointed again and again while much more than its limit is written."""
    largest = 0
    for _ in range(30):
        await write(small, 50)
        await settled(small)
        largest = max(largest, log_size(path))
    assert largest < 3 * LIMIT
    assert int(str(small.describe()["checkpoints"])) >= 5


async def test_the_log_is_cut_back(small: SqliteStore, path: Path) -> None:
    """After a checkpoint the next commit starts it from the top, with the space it had up to the limit:
    overwriting is faster to sync than growing."""
    await small.put_fact(Fact.of(os.urandom(2 * LIMIT)))
    assert log_size(path) > 2 * LIMIT
    assert await small.checkpoint()
    await small.put_fact(Fact.of(b"next"))
    assert log_size(path) == LIMIT


async def test_a_checkpoint_holds_the_lock_of_the_writer(
    small: SqliteStore, probe: Probe, other: Other
) -> None:
    """While the log is checkpointed, nobody in any process can commit: this is what avoids the race."""
    refused = []

    def try_to_write() -> None:
        try:
            other.lock()
        except sqlite3.OperationalError:
            refused.append(True)

    await small.put_fact(Fact.of(b"x"))
    await settled(small)
    probe.before(CHECKPOINT, try_to_write)
    assert await small.checkpoint()
    assert refused == [True]


async def test_a_checkpoint_waits_for_a_writer(
    small: SqliteStore, probe: Probe, other: Other
) -> None:
    """As long as another process writes, no checkpoint is even tried: it would be a passive one."""
    await small.put_fact(Fact.of(b"x"))
    await settled(small)
    probe.statements.clear()
    probe.busy.clear()
    other.lock()
    checkpoint = asyncio.create_task(small.checkpoint())
    assert await asyncio.to_thread(probe.busy.wait, 60)
    assert probe.threads_of(CHECKPOINT) == set()
    other.unlock()
    assert await checkpoint
    assert probe.threads_of(CHECKPOINT) == {"outlast-writer"}


async def test_a_checkpoint_never_runs_in_the_loop(small: SqliteStore, probe: Probe) -> None:
    """A checkpoint takes long, whoever causes it."""
    await write(small, 300)
    await settled(small)
    assert probe.threads_of(CHECKPOINT) == {"outlast-writer"}


async def test_a_reader_holds_up_a_checkpoint(small: SqliteStore, path: Path, other: Other) -> None:
    """What another process still reads stays in the log, and writers go on; when it is done, the
    log shrinks again."""
    await write(small, 30)
    other.begin_reading()
    await write(small, 200)
    assert not await small.checkpoint()
    checkpoints = int(str(small.describe()["checkpoints"]))
    await write(small, 50)
    await settled(small)
    assert int(str(small.describe()["checkpoints"])) - checkpoints <= 5  # not one for each commit
    other.end_reading()
    assert await small.checkpoint()
    await small.put_fact(Fact.of(b"next"))
    assert log_size(path) == LIMIT


@pytest.mark.proves("I31")
async def test_past_the_hard_limit_writers_wait(
    small: SqliteStore, path: Path, other: Other
) -> None:
    """A reader that stays for ever cannot fill the disk: writers wait for it, as long as their
    callers let them, and say why."""
    await write(small, 30)
    other.begin_reading()
    with pytest.raises(TimedOut, match="log is at its limit"):
        await write(small, 3000, timeout=0.5)
    assert HARD_LIMIT < log_size(path) < HARD_LIMIT + 100_000
    other.end_reading()
    await write(small, 30)
    assert log_size(path) == LIMIT


async def test_no_statement_stays_open(store: SqliteStore, path: Path, other: Other) -> None:
    """After every kind of call, also a stream that is left in the middle, another process can checkpoint
    the whole log at once: nothing of ours reads any more."""
    await store.append("a", [event("a") for _ in range(500)])
    await store.append("b", [event("b")])
    queue = store.queue()
    await queue.enqueue("q", [Task(), Task()])
    async for _ in store.stream("a", page=10):
        break
    await store.find(RunQuery(limit=1))
    await store.find(RunQuery(status=frozenset(), limit=1, workflow=""))
    await store.history("a", limit=3)
    await store.inbox("a", limit=1)
    await store.due_timers(limit=1)
    await store.find_available_tasks(limit=1)
    await store.snapshot_ids(limit=1)
    await store.claim_runs("me", 10, limit=1)
    await queue.dequeue("q")
    await queue.dead("q", limit=1)
    await store.next_runnable_at()
    with closing(sqlite3.connect(path, timeout=0)) as connection:
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
    assert busy == 0
    assert log_size(path) == 0


async def test_a_checkpoint_that_fails_is_tried_again(
    small: SqliteStore, path: Path, probe: Probe, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint belongs to nobody's call: it is told to the log, and the next commits try again."""
    sick = True

    def fail() -> None:
        if sick:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    probe.before(CHECKPOINT, fail)
    await write(small, 200)
    await settled(small)
    assert "checkpoint of the log failed" in caplog.text
    sick = False
    await write(small, 100)
    await settled(small)
    await small.put_fact(Fact.of(b"next"))
    assert log_size(path) == LIMIT


@pytest.mark.parametrize(
    "version,race",
    [
        ("3.6.23", False),
        ("3.7.0", True),
        ("3.40.1", True),
        ("3.44.5", True),
        ("3.44.6", False),
        ("3.45.0", True),
        ("3.50.6", True),
        ("3.50.7", False),
        ("3.51.0", True),
        ("3.51.2", True),
        ("3.51.3", False),
        ("3.54.1", False),
    ],
)
def test_which_versions_have_the_race(version: str, race: bool) -> None:
    """Fixed in 3.51.3, and in 3.50.7 and 3.44.6 by backports."""
    assert has_reset_race(version) is race
