"""Small writes that wait at the same time share a transaction, and nothing else."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import warnings
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from outlast.errors import OutlastError, StoreClosed, StoreFull, UnknownOutcome
from outlast.model import Task
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite import writer as writing
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.connection_worker import AwaitedJob
from outlast.stores.sqlite.write_batching import MAX_INLINE_WRITES
from tests.stores.sqlite.probes import Other, Probe, event
from tests.stores.sqlite.test_connection_worker import until
from tests.stores.sqlite.test_driver_errors import error_of

FULL = 13


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever statements and commits take here, they are done where fast ones are."""
    monkeypatch.setattr(writing, "SLOW_COMMIT_S", 60.0)
    monkeypatch.setattr(writing, "MAX_INLINE_S", 60.0)


def transactions(probe: Probe) -> int:
    """How many were committed."""
    return sum(sql == "COMMIT" for _, sql in probe.statements)


def append(store: SqliteStore, name: str, **fields: Any) -> asyncio.Task[int]:
    """Begin to write one event."""
    return asyncio.create_task(store.append(name, [event(name, **fields)]))


async def lengths(store: SqliteStore, names: str) -> str:
    """How long these histories are."""
    return "".join([str(await store.last_sequence(name)) for name in names])


async def test_those_of_one_turn_share_a_sync(store: SqliteStore, probe: Probe) -> None:
    """The first goes at once; all behind it are one transaction. A thread may look a few times before
    all have come."""
    await store.append("a", [event("a")])
    await asyncio.sleep(0)
    probe.statements.clear()
    assert await asyncio.gather(*(append(store, f"r{n}") for n in range(40))) == [1] * 40
    if store._session.database.inline:
        assert transactions(probe) == 2
    else:
        assert transactions(probe) <= 20


async def test_those_who_come_back_together_stay_together(path: Path, probe: Probe) -> None:
    """Eight callers with ten tasks each need little more than ten transactions."""
    async with SqliteStore(path, connect=probe.connect) as store:
        queue = store.queue()

        async def add(caller: int) -> None:
            for number in range(10):
                await queue.enqueue("jobs", [Task(id=f"{caller}-{number}")])

        probe.statements.clear()
        await asyncio.gather(*(add(caller) for caller in range(8)))
        assert await queue.len("jobs") == 80
        assert transactions(probe) <= 13


async def test_one_that_comes_alone_waits_for_nobody(path: Path, probe: Probe) -> None:
    """It is one transaction without a savepoint, and never leaves the loop."""
    async with SqliteStore(path, connect=probe.connect) as store:
        probe.statements.clear()
        for _ in range(4):
            await store.append("a", [event("a")])
    assert transactions(probe) == 4
    assert not probe.threads_of("SAVEPOINT")


@pytest.mark.proves("I1")
async def test_one_that_fails_leaves_the_others_alone(store: SqliteStore) -> None:
    """What it wrote before is gone; what those before and behind it wrote is there."""
    await store.append("a", [event("a")])

    def break_off(db: Connection) -> None:
        db.execute("DELETE FROM events")
        raise StoreFull("no")

    first, second = append(store, "b"), append(store, "c")
    broken = asyncio.create_task(store._session.write(break_off, timeout=None))
    last = append(store, "d")
    with pytest.raises(StoreFull):
        await broken
    assert [await first, await second, await last] == [1, 1, 1]
    assert await lengths(store, "abcd") == "1111"
    assert len(await store.history("a")) == 1


async def test_an_event_that_is_known_among_others(store: SqliteStore) -> None:
    """It is refused, and the others are written."""
    known = event("a")
    await store.append("a", [known])
    calls = [append(store, "b"), append(store, "c"), append(store, "a", id=known.id)]
    calls += [append(store, "e"), append(store, "f")]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [end for end in ends if not isinstance(end, OutlastError)] == [1, 1, 1, 1]
    assert isinstance(ends[2], OutlastError)
    assert await lengths(store, "abcef") == "11111"


async def test_when_all_of_it_is_rolled_back(store: SqliteStore) -> None:
    """After some errors SQLite rolls back by itself: then the others are done again, and once."""
    await store.append("a", [event("a")])

    def lose(db: Connection) -> None:
        db.execute("ROLLBACK")
        raise error_of(FULL)

    calls = [append(store, "b"), append(store, "c")]
    lost = asyncio.create_task(store._session.write(lose, timeout=None))
    calls += [append(store, "d"), append(store, "e")]
    with pytest.raises(StoreFull) as told:
        await lost
    assert isinstance(told.value.__cause__, sqlite3.Error)
    assert await asyncio.gather(*calls) == [1, 1, 1, 1]
    assert await lengths(store, "bcde") == "1111"
    assert await store.append("a", [event("a")]) == 2


@pytest.mark.proves("M-10", "C-20")
async def test_one_that_is_given_up_before_it_is_done_again(path: Path) -> None:
    """What had begun, was taken back and is not waited for any more is not written."""
    async with SqliteStore(path) as store:
        calls = [append(store, name) for name in "abc"]

        def lose(db: Connection) -> None:
            calls[1].cancel()
            db.execute("ROLLBACK")
            raise error_of(FULL)

        lost = asyncio.create_task(store._session.write(lose, timeout=None))
        ends = await asyncio.gather(*calls, lost, return_exceptions=True)
        assert ends[::2] == [1, 1]
        assert [type(end) for end in ends[1::2]] == [asyncio.CancelledError, StoreFull]
        assert await lengths(store, "abc") == "101"


async def test_a_trigger_that_rolls_back(path: Path, inline: bool) -> None:
    """In a file with tables of others one write may undo all: that is told to this one alone."""
    async with SqliteStore(path, prefix="outlast_", inline=inline) as store:
        queue = store.queue()
        with closing(sqlite3.connect(path)) as other:
            other.execute(
                "CREATE TRIGGER no BEFORE INSERT ON outlast_tasks WHEN NEW.id LIKE 'bad%' "
                "BEGIN SELECT RAISE(ROLLBACK, 'no'); END"
            )
        names = ["a", "b", "bad1", "c", "d", "bad2", "bad3", "e"]
        calls = [queue.enqueue("jobs", [Task(id=name)]) for name in names]
        ends = await asyncio.gather(*calls, return_exceptions=True)
        written = [name for name, end in zip(names, ends, strict=True) if end == 1]
        assert written == list("abcde")
        assert await queue.len("jobs") == 5


@pytest.mark.parametrize("kind,code", [(StoreFull, FULL), (UnknownOutcome, 1034)])
async def test_a_sync_that_fails_is_that_of_all(
    store: SqliteStore, probe: Probe, kind: type[Exception], code: int
) -> None:
    """All of them are told, and none is told that it was written."""
    await store.append("a", [event("a")])

    def fail() -> None:
        raise error_of(code)

    probe.before("COMMIT", fail)
    calls = [append(store, name) for name in "bcdef"]
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(end) for end in ends} == {kind}
    probe.before("COMMIT", lambda: None)
    assert await lengths(store, "bcdef") == "00000"
    assert await store.append("a", [event("a")]) == 2


@pytest.mark.proves("M-10", "C-20")
async def test_one_that_is_given_up_is_not_written(path: Path, probe: Probe) -> None:
    """Cancelled before the end of its turn, it leaves nothing behind."""
    async with SqliteStore(path, connect=probe.connect) as store:
        calls = [append(store, name) for name in "abc"]
        asyncio.get_running_loop().call_soon(calls[1].cancel)
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert ends[::2] == [1, 1]
        assert isinstance(ends[1], asyncio.CancelledError)
        assert await lengths(store, "abc") == "101"


async def test_those_who_wait_for_a_lock_share_what_comes_then(
    store: SqliteStore, probe: Probe, other: Other
) -> None:
    """The first that waits goes alone, those behind it together, in the order in which they came; who
    has given up meanwhile is left out."""
    await store.append("a", [event("a")])
    other.lock()
    first = append(store, "a", step_name="first")
    await until(probe.busy)
    later = [append(store, "a", step_name=name) for name in "uvwxyz"]
    await asyncio.sleep(0)
    later[2].cancel()
    probe.statements.clear()
    other.unlock()
    assert await first == 2
    await asyncio.gather(*later, return_exceptions=True)
    names = [one.step_name for one in await store.history("a", after=1)]
    assert names == ["first", "u", "v", "x", "y", "z"]
    assert transactions(probe) <= 3


async def test_closed_before_the_end_of_the_turn(path: Path, other: Other) -> None:
    """Whoever waits in a batch is told, in the loop as in the thread."""
    store = SqliteStore(path)
    await store.append("a", [event("a")])
    calls = [append(store, name) for name in "abc"]
    await asyncio.sleep(0)
    writer = store._session.database.opened().writer
    writer._closing.set()
    other.lock()
    ends = await asyncio.gather(*calls[1:], return_exceptions=True)
    other.unlock()
    assert {type(end) for end in ends} == {StoreClosed}
    await store.close()


async def test_what_is_too_much_for_one_turn(path: Path, probe: Probe) -> None:
    """The loop is held up by no more than one small transaction at a time."""
    async with SqliteStore(path, connect=probe.connect) as store:
        half = MAX_INLINE_WRITES // 2
        calls = [
            asyncio.create_task(store.append(name, [event(name) for _ in range(half)]))
            for name in "abcdef"
        ]
        probe.statements.clear()
        assert await asyncio.gather(*calls) == [half] * 6
        assert transactions(probe) >= 3
        assert probe.threads_of("COMMIT") == {"MainThread"}


async def test_those_for_whom_there_is_no_time(
    path: Path, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large what they write is, the loop goes round before the next of them; their order stays."""
    monkeypatch.setattr(writing, "MAX_INLINE_S", -1.0)
    async with SqliteStore(path, connect=probe.connect) as store:
        probe.statements.clear()
        calls = [append(store, "a", step_name=name) for name in "uvwxyz"]
        rounds = 0
        while not all(call.done() for call in calls):
            await asyncio.sleep(0)
            rounds += 1
        assert [await call for call in calls] == [1, 2, 3, 4, 5, 6]
        assert [one.step_name for one in await store.history("a")] == list("uvwxyz")
        assert transactions(probe) == 6
        assert rounds > 5
        assert probe.threads_of("COMMIT") == {"MainThread"}


async def test_an_interrupt_among_many(path: Path, probe: Probe) -> None:
    """Ctrl-C is raised by one who has not given up; the others know that they do not know."""
    async with SqliteStore(path, connect=probe.connect) as store:
        await store.append("a", [event("a")])
        probe.before("COMMIT", _interrupt)
        jobs = [AwaitedJob(lambda db: db.execute("DELETE FROM events"), rows=1) for _ in range(3)]
        jobs[0].future.cancel()
        write = store._session.database.opened().writer._write_batch
        write(jobs)
        ends = [type(job.future.exception()) for job in jobs[1:]]
        assert ends == [KeyboardInterrupt, UnknownOutcome]
        with pytest.raises(KeyboardInterrupt):
            write(jobs)
        probe.before("COMMIT", lambda: None)
        assert await store.append("a", [event("a")]) == 2


def _interrupt() -> None:
    raise KeyboardInterrupt


async def test_an_error_that_no_future_takes(path: Path) -> None:
    """Whoever is told after it is told all the same."""
    async with SqliteStore(path) as store:

        def stop(_: Connection) -> None:
            raise StopIteration

        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        calls = [append(store, "a"), append(store, "b")]
        stopped = asyncio.create_task(store._session.write(stop, timeout=None))
        last = append(store, "c")
        async with asyncio.timeout(10):
            ends = await asyncio.gather(*calls, stopped, last, return_exceptions=True)
        assert ends[:2] == [1, 1]
        assert isinstance(ends[2], (TypeError, RuntimeError))
        assert ends[3] == 1 or isinstance(ends[3], UnknownOutcome)
        assert await lengths(store, "abc") == "111"


async def test_a_fork_while_some_wait(path: Path) -> None:
    """They are written by the parent, once; in the child nothing is, and nobody waits for ever."""
    async with SqliteStore(path) as store:
        writer = store._session.database.opened().writer
        calls = [append(store, name) for name in "abc"]
        await asyncio.sleep(0)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python's, of forking with threads
            child = os.fork()
        if child == 0:
            jobs = next(iter(writer._batches._batches.values()))
            writer._write_batch(jobs)
            told = [job.future.done() and type(job.future.exception()).__name__ for job in jobs]
            os.write(write, repr(told).encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 100).decode()
        os.close(read)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert said == "['StoreClosed', 'StoreClosed']"
        assert await asyncio.gather(*calls) == [1, 1, 1]
        assert await lengths(store, "abc") == "111"


async def test_loops_that_end_in_the_midst_of_a_turn(path: Path) -> None:
    """What waited there is forgotten with its loop."""
    async with SqliteStore(path) as store:

        async def leave() -> None:
            for name in "abc":
                append(store, name)
            await asyncio.sleep(0)
            asyncio.get_running_loop().stop()

        def live() -> None:
            loop = asyncio.new_event_loop()
            loop.set_exception_handler(lambda *_: None)
            loop.create_task(leave())  # noqa: RUF006
            loop.run_forever()
            loop.close()

        for _ in range(3):
            await asyncio.to_thread(live)
        await store.append("d", [event("d")])
        batches = store._session.database.opened().writer._batches
        assert list(batches._batches) == [asyncio.get_running_loop()]


async def test_the_context_of_a_crowd_is_that_of_nobody(path: Path) -> None:
    """What one caller carries along is not seen, or kept, by the writes of others."""
    mark: ContextVar[str] = ContextVar("mark", default="nobody's")
    async with SqliteStore(path) as store:
        token = mark.set("the first one's")
        first = append(store, "a")
        mark.reset(token)
        calls = [store._session.write(lambda _: mark.get(), timeout=None) for _ in range(2)]
        assert await asyncio.gather(*calls) == ["nobody's", "nobody's"]
        assert await first == 1


async def test_threads_with_loops_of_their_own(path: Path) -> None:
    """Each loop has its own batch; nothing is lost or doubled between them."""
    async with SqliteStore(path) as store:

        async def work(number: int) -> None:
            for _ in range(10):
                await asyncio.gather(*(append(store, f"{number}{name}") for name in "abcde"))

        threads = [
            threading.Thread(target=lambda number=number: asyncio.run(work(number)))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        for number in range(3):
            assert [await store.last_sequence(f"{number}{name}") for name in "abcde"] == [10] * 5
