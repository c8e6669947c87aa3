"""A step that kills its process, among supervised workers: takeover at once must not become a crash loop."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path

import pytest

import outlast
from tests.stores.sqlite_processes.crew import Member

WORKERS, GOOD = 8, 40


@outlast.step
async def innocent(number: int) -> int:
    await asyncio.sleep(0.3)
    return number


@outlast.step
async def killer() -> None:
    os._exit(9)


@outlast.workflow
async def good(number: int) -> int:
    return await innocent(number) + await innocent(number)


@outlast.workflow
async def bad() -> None:
    await killer()


@outlast.workflow
async def bad_in_replay() -> None:
    """It kills its process before anything is recorded of it."""
    os._exit(9)


def work(_pipe: Pipe, url: str) -> None:
    """A worker, until it is killed."""

    async def live() -> None:
        async with outlast.App(url, workflows=[good, bad, bad_in_replay], lease=5):
            await asyncio.Event().wait()

    asyncio.run(live())


def supervise(url: str, *bad_runs: str) -> int:
    """Run the workers until all good runs and `bad_runs` have ended, and start one again when it dies; how many died."""
    workers = [Member(work, (url,)) for _ in range(WORKERS)]
    watcher = Member(ends, (url, *bad_runs))
    deaths = 0
    try:
        while True:
            ready = wait([watcher.pipe, *(worker.process.sentinel for worker in workers)], 120)
            assert ready, "not all have ended"
            if watcher.pipe in ready:
                return deaths
            for number, worker in enumerate(workers):
                if worker.process.sentinel in ready:
                    deaths += 1
                    worker.kill()
                    workers[number] = Member(work, (url,))
    finally:
        for member in (watcher, *workers):
            member.kill()


def ends(_pipe: Pipe, url: str, *bad_runs: str) -> str:
    """Wait for the ends of runs."""

    async def look() -> str:
        async with outlast.Client(url) as client:
            runs = [client.get(id) for id in (*(f"good-{n}" for n in range(GOOD)), *bad_runs)]
            await asyncio.gather(*(run.result() for run in runs), return_exceptions=True)
            return "ended"

    return asyncio.run(look())


@pytest.mark.proves("I10", "I24")
@pytest.mark.timeout(300)
async def test_eight_workers_and_a_step_that_kills(tmp_path: Path) -> None:
    """Each death is an attempt of the step, it fails in the end, and every other run completes."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with outlast.Client(url) as client:
        for number in range(GOOD):
            await client.start(good(number), id=f"good-{number}")
        await client.start(bad(), id="bad")
    deaths = await asyncio.to_thread(supervise, url, "bad")
    async with outlast.Client(url) as client:
        for number in range(GOOD):
            assert await client.get(f"good-{number}").result() == 2 * number
        assert (await client.get("bad").status()).status == "failed"
        attempts = [
            event async for event in client.get("bad").events() if event.type == "step.started"
        ]
    assert 1 <= deaths <= len(attempts)


@pytest.mark.proves("I10", "I24")
@pytest.mark.timeout(300)
async def test_code_that_kills_in_replay_waits_for_its_lease(tmp_path: Path) -> None:
    """It records no attempt, so nothing counts its deaths. Runs that die with it are claimed in small groups, and
    complete, while it waits for its lease again and again."""
    url = f"sqlite:///{tmp_path}/store.db"
    async with outlast.Client(url) as client:
        await client.start(bad_in_replay(), id="bad")
        for number in range(GOOD):
            await client.start(good(number), id=f"good-{number}")
    assert await asyncio.to_thread(supervise, url) >= 1
    async with outlast.Client(url) as client:
        for number in range(GOOD):
            assert await client.get(f"good-{number}").result() == 2 * number
        assert not (await client.get("bad").status()).status.terminal
