"""Processes on one file hear of each other's commits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast.model import Commit, Run
from outlast.ports import SystemClock
from outlast.ports.notifier import hears_all
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.notifier import MAX_POLL_DELAY_S, SqliteNotifier
from outlast.testing.virtual_clock import ManualClock


async def begin(store: SqliteStore, id: str) -> None:
    """A new run."""
    await store.commit([Commit(run_id=id, create=Run(id=id, workflow="nobody's"))])


async def test_the_number_tells_others_from_us(tmp_path: Path) -> None:
    """It changes with a commit of another process, and not with our own."""
    async with SqliteStore(tmp_path / "a.db") as here, SqliteStore(tmp_path / "a.db") as there:
        database = here._session.database
        before = database.foreign_version()
        assert before is not None
        await begin(here, "ours")
        assert database.foreign_version() == before
        await begin(there, "theirs")
        assert database.foreign_version() != before
    assert database.foreign_version() is None


@pytest.mark.proves("I24")
async def test_whoever_waits_hears_another_process(tmp_path: Path) -> None:
    """Long before it would look by itself."""
    async with SqliteStore(tmp_path / "a.db") as here, SqliteStore(tmp_path / "a.db") as there:
        notifier = here.notifier
        # The first look finds a number that is new.
        assert not hears_all(notifier)
        assert await notifier.wait(SystemClock(), 3600, since=notifier.wakeups)
        assert hears_all(notifier), "so nobody has to look for work every second"
        waiting = asyncio.create_task(notifier.wait(SystemClock(), 3600, since=notifier.wakeups))
        await begin(there, "r")
        assert await waiting


@pytest.mark.proves("I24")
def test_a_loop_that_nobody_runs_any_more_looks_at_nothing(tmp_path: Path) -> None:
    """Whoever waits in another loop looks instead, and until then work is looked for."""
    path = tmp_path / "a.db"

    async def opened() -> SqliteStore:
        return await SqliteStore(path).__aenter__()

    first = asyncio.new_event_loop()
    try:
        here = first.run_until_complete(opened())
        notifier = here.notifier
        assert isinstance(notifier, SqliteNotifier)
        assert first.run_until_complete(notifier.wait(SystemClock(), 3600, since=notifier.wakeups))
        assert hears_all(notifier)

        async def go_on() -> None:
            notifier._polled_at -= MAX_POLL_DELAY_S  # time passes, and nobody looks
            assert not hears_all(notifier)
            async with SqliteStore(path) as there:
                waiting = asyncio.create_task(
                    notifier.wait(SystemClock(), 3600, since=notifier.wakeups)
                )
                while not hears_all(notifier):  # noqa: ASYNC110 - it begins to look
                    await asyncio.sleep(0)
                await begin(there, "r")
                assert await waiting

        asyncio.run(go_on())
        first.run_until_complete(here.__aexit__(None, None, None))
    finally:
        first.close()


@pytest.mark.proves("I24")
async def test_a_run_begun_elsewhere_is_taken_up(tmp_path: Path) -> None:
    """And its result is heard of where it was begun."""

    @outlast.workflow
    async def double(number: int) -> int:
        return 2 * number

    url = f"sqlite:///{tmp_path}/a.db"
    async with outlast.App(url, workflows=[double]), outlast.App(url) as client:
        for number in range(3):
            run = await client.start(double(number), here=False)
            assert await run.result(timeout=60) == 2 * number


async def test_virtual_time_knows_no_looking(tmp_path: Path) -> None:
    """Where a test moves time, only its own wake-ups count."""
    clock = ManualClock()
    async with SqliteStore(tmp_path / "a.db", clock=clock) as here:
        waiting = asyncio.create_task(here.notifier.wait(clock, 60, since=here.notifier.wakeups))
        async with SqliteStore(tmp_path / "a.db") as there:
            await begin(there, "r")
        while not clock.sleepers:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(0)
        clock.advance(61)
        assert await waiting is False
        assert not hears_all(here.notifier)
