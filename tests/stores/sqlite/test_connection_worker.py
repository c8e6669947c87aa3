"""In the event loop or in a thread: when which, and what a deadline or a cancellation does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from outlast.errors import StoreClosed, TimedOut, UnknownOutcome
from outlast.model import RunQuery, Status
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite import writer as writing
from outlast.stores.sqlite.write_batching import MAX_INLINE_WRITES
from outlast.testing.virtual_clock import ManualClock
from tests.stores.sqlite.probes import Other, Probe, event

BEGIN = "BEGIN IMMEDIATE"
LOOP = "MainThread"
WRITER = "outlast-writer"
READER = "outlast-reader"
SEARCHER = "outlast-searcher"


@pytest.fixture
async def quick(path: Path, clock: ManualClock, probe: Probe) -> AsyncIterator[SqliteStore]:
    """A store that may work in the event loop."""
    async with SqliteStore(path, clock=clock, connect=probe.connect) as store:
        await store.append("a", [event("a")])
        probe.statements.clear()
        yield store


async def until(event: threading.Event) -> None:
    """Wait for something in another thread without holding up the loop."""
    assert await asyncio.to_thread(event.wait, 60)


def pace(store: SqliteStore, seconds: float) -> None:
    """Pretend that commits have taken so long lately."""
    store._session.database.opened().writer.pace = seconds


# -- which way ------------------------------------------------------------------------------------


async def test_small_calls_stay_in_the_loop(quick: SqliteStore, probe: Probe) -> None:
    """On a fast disk neither a small write nor a small read leaves the event loop."""
    await quick.append("a", [event("a")])
    await quick.get("a")
    await quick.history("a")
    assert probe.threads_of("") == {LOOP}


async def test_large_calls_leave_the_loop(quick: SqliteStore, probe: Probe) -> None:
    """A batch, a history or a search of unknown size does not hold up the loop."""
    await quick.append("a", [event("a") for _ in range(MAX_INLINE_WRITES + 1)])
    assert probe.threads_of(BEGIN) == {WRITER}
    assert len(await quick.history("a")) == MAX_INLINE_WRITES + 2
    await quick.run_ids()
    await quick.delete("a")
    assert probe.threads_of("SELECT r.*") == {SEARCHER}
    assert probe.threads_of("DELETE") == {WRITER}


async def test_small_reads_do_not_wait_for_large_ones(quick: SqliteStore, probe: Probe) -> None:
    """A search that takes its time does not hold up those who want one row."""
    reached, go_on = threading.Event(), threading.Event()

    def stop_there() -> None:
        reached.set()
        _wait(go_on)

    probe.before("WITH RECURSIVE named", stop_there)
    search = asyncio.create_task(quick.find(RunQuery(status=frozenset({Status.PENDING}))))
    await until(reached)
    assert await quick.last_sequence("a") == 1
    go_on.set()
    assert len((await search).items) == 1


async def test_nothing_in_the_loop_if_the_user_wants_that(path: Path, probe: Probe) -> None:
    """With ``inline=False`` every statement runs in a thread."""
    async with SqliteStore(path, connect=probe.connect, inline=False) as store:
        probe.statements.clear()
        await store.append("a", [event("a")])
        await store.get("a")
    assert probe.threads_of("") == {WRITER, READER}


async def test_a_slow_disk_sends_writes_to_the_thread(
    quick: SqliteStore, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slow commits move to the thread; after a while one is tried in the loop, and if it was fast,
    all are back."""
    monkeypatch.setattr(writing, "PROBE_INTERVAL_S", 3600.0)
    pace(quick, 1.0)
    quick._session.database.opened().writer._measure(1.0, inline=True)
    await quick.append("a", [event("a")])
    assert probe.threads_of(BEGIN) == {WRITER}
    probe.statements.clear()
    quick._session.database.opened().writer._probe_at = 0.0
    await quick.append("a", [event("a")])
    assert probe.threads_of(BEGIN) == {LOOP}


def test_one_hiccup_is_no_slow_disk(path: Path) -> None:
    """A single slow commit among fast ones does not change the way; several do."""
    writer = writing.Writer.__new__(writing.Writer)
    writer.pace = 0.0
    for _ in range(20):
        writer._measure(0.0003, inline=True)
    writer._measure(5.0, inline=True)
    assert writer.pace < writing.SLOW_COMMIT_S
    writer._measure(5.0, inline=True)
    assert writer.pace >= writing.SLOW_COMMIT_S
    writer._measure(0.0003, inline=True)  # a probe: what was before is out of date
    assert writer.pace < writing.SLOW_COMMIT_S


def test_a_disk_that_is_fast_again_is_noticed_in_the_thread(path: Path) -> None:
    """Commits that the thread does count as well: a few fast ones in a row, and all are back."""
    writer = writing.Writer.__new__(writing.Writer)
    writer.pace = 0.0
    for _ in range(20):
        writer._measure(5.0, inline=True)
    probe_at = writer._probe_at
    writer._measure(0.0003, inline=False)
    assert writer.pace >= writing.SLOW_COMMIT_S, "one alone says little"
    for _ in range(10):
        writer._measure(0.0003, inline=False)
    assert writer.pace < writing.SLOW_COMMIT_S
    assert writer._probe_at == probe_at, "the thread does not put off a look in the loop"


async def test_a_locked_database_sends_the_write_to_the_thread(
    quick: SqliteStore, probe: Probe, other: Other
) -> None:
    """While another process writes, the loop goes on; the write happens when the lock is free."""
    other.lock()
    append = asyncio.create_task(quick.append("a", [event("a")]))
    await until(probe.busy)
    assert await quick.last_sequence("a") == 1  # readers are not in the way of writers
    other.unlock()
    assert await append == 2
    assert probe.threads_of(BEGIN) == {LOOP, WRITER}


async def test_waiting_calls_keep_their_order(
    quick: SqliteStore, probe: Probe, other: Other
) -> None:
    """Calls that come while one waits for the lock wait behind it."""
    other.lock()
    first = asyncio.create_task(quick.append("a", [event("a", step_name="first")]))
    await until(probe.busy)
    later = [asyncio.create_task(quick.append("a", [event("a", step_name=f"{n}")])) for n in "xyz"]
    await asyncio.sleep(0)
    other.unlock()
    assert [await first, *[await one for one in later]] == [2, 3, 4, 5]
    names = [one.step_name for one in await quick.history("a", after=1)]
    assert names == ["first", "x", "y", "z"]


# -- deadlines ------------------------------------------------------------------------------------


@pytest.mark.proves("M-10", "C-20")
async def test_a_lock_that_is_never_free(store: SqliteStore, other: Other) -> None:
    """When the deadline passes before anything was done, nothing is done later either."""
    await store.append("a", [event("a")])
    other.lock()
    with pytest.raises(TimedOut):
        await store.append("a", [event("a")], timeout=0.02)
    other.unlock()
    assert await store.append("a", [event("a")]) == 2


async def test_a_deadline_tells_what_was_in_the_way(quick: SqliteStore, other: Other) -> None:
    """An operator has to know whom to look for."""
    other.lock()
    with pytest.raises(TimedOut, match="another process is writing"):
        await quick.append("a", [event("a")], timeout=0.02)
    other.unlock()


@pytest.mark.proves("M-10", "C-20")
async def test_a_deadline_in_the_middle_of_a_commit(path: Path, probe: Probe) -> None:
    """Once the write has begun its fate is unknown; it comes to its own end and is found by
    `Commit.id`."""
    async with SqliteStore(path, connect=probe.connect, inline=False) as store:
        await store.append("a", [event("a")])
        go_on = threading.Event()
        probe.before("COMMIT", lambda: _wait(go_on))
        with pytest.raises(UnknownOutcome):
            await store.append("a", [event("a")], timeout=0.02)
        go_on.set()
        assert await store.append("a", [event("a")]) == 3


async def test_a_read_that_takes_too_long(path: Path, probe: Probe) -> None:
    """A read has done nothing, so it may simply be asked again."""
    async with SqliteStore(path, connect=probe.connect, inline=False) as store:
        await store.append("a", [event("a")])
        go_on = threading.Event()
        probe.before("SELECT r.*", lambda: _wait(go_on))
        with pytest.raises(TimedOut):
            await store.get("a", timeout=0.02)
        go_on.set()
        assert (await store.get("a", timeout=60)).sequence == 1


# -- cancellation ---------------------------------------------------------------------------------


@pytest.mark.proves("M-10", "C-20")
async def test_cancelled_while_it_waits_for_the_lock(
    store: SqliteStore, probe: Probe, other: Other
) -> None:
    """A caller who gives up before the write has begun leaves nothing behind, and no lock."""
    await store.append("a", [event("a")])
    other.lock()
    append = asyncio.create_task(store.append("a", [event("a")]))
    await until(probe.busy)
    append.cancel()
    with pytest.raises(asyncio.CancelledError):
        await append
    other.unlock()
    assert await store.append("a", [event("a")]) == 2


@pytest.mark.proves("M-10", "C-20")
async def test_cancelled_in_the_middle_of_a_commit(path: Path, probe: Probe) -> None:
    """A write that has begun comes to its own end, whole, and the writer is free for the next."""
    async with SqliteStore(path, connect=probe.connect, inline=False) as store:
        await store.append("a", [event("a")])
        reached, go_on = threading.Event(), threading.Event()

        def stop_there() -> None:
            reached.set()
            _wait(go_on)

        probe.before("COMMIT", stop_there)
        append = asyncio.create_task(store.append("a", [event("a"), event("a")]))
        await until(reached)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        go_on.set()
        assert await store.append("a", [event("a")]) == 4


async def test_closed_while_calls_wait(store: SqliteStore, probe: Probe, other: Other) -> None:
    """Closing does not wait for another process: whoever waits is told that the store is closed."""
    await store.append("a", [event("a")])
    other.lock()
    waiting = [asyncio.create_task(store.append("a", [event("a")])) for _ in range(3)]
    await until(probe.busy)
    await store.close()
    for call in waiting:
        with pytest.raises(StoreClosed):
            await call
    other.unlock()
    await store.open()
    assert await store.last_sequence("a") == 1


# -- threads --------------------------------------------------------------------------------------


@pytest.mark.proves("K-11", "K-12", "S-22", "I1")
async def test_many_loops_share_a_store(store: SqliteStore) -> None:
    """Threads with loops of their own append to one run and to many: nothing is lost or doubled."""

    async def work(number: int) -> None:
        for _ in range(20):
            await store.append("shared", [event("shared")])
            await store.append(f"own-{number}", [event(f"own-{number}")])
            assert await store.last_sequence(f"own-{number}") > 0

    def in_a_loop_of_its_own(number: int) -> None:
        asyncio.run(work(number))

    await asyncio.gather(*(asyncio.to_thread(in_a_loop_of_its_own, n) for n in range(4)))
    sequences = [one.sequence for one in await store.history("shared")]
    assert sequences == list(range(1, 81))
    assert [await store.last_sequence(f"own-{n}") for n in range(4)] == [20] * 4


async def test_a_loop_that_ends_while_its_call_waits(
    store: SqliteStore, probe: Probe, other: Other
) -> None:
    """The writer does not depend on the loop that asked: it is free for the others."""
    await store.append("a", [event("a")])
    other.lock()
    thread = threading.Thread(target=_run_and_stop, args=(store, probe.busy))
    thread.start()
    await asyncio.to_thread(thread.join)
    other.unlock()
    assert await store.append("a", [event("a")]) >= 2


def _wait(event: threading.Event) -> None:
    assert event.wait(60)


def _run_and_stop(store: SqliteStore, busy: threading.Event) -> None:
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Task[int]:
        return loop.create_task(store.append("a", [event("a")]))

    task = loop.run_until_complete(start())
    stop: Callable[[], None] = loop.stop
    waiter = loop.run_in_executor(None, busy.wait, 60)
    waiter.add_done_callback(lambda _: stop())
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_default_executor())
    assert not task.done()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is abandoned on purpose
    loop.close()
