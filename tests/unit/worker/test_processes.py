"""Several worker processes on one file: one is killed, one is stopped in good order, none matters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import outlast
from outlast.model import EventType
from outlast.model.event import payload_of
from outlast.model.payloads import StepStarted
from tests.stores.sqlite_processes.crew import Crew, Member

RUNS = 12
parent: list[Pipe] = []
"""In a worker: the way to the test."""
LEASE = 1.5


@outlast.step
async def prepare(number: int) -> int:
    note("prepare", number)
    await asyncio.sleep(0.02)
    return number


@outlast.step(queue="heavy")
async def heavy(number: int) -> int:
    note("heavy", number)
    await asyncio.sleep(0.05)
    return 2 * number


@outlast.workflow
async def job(number: int) -> int:
    start = await prepare(number)
    one, other = await asyncio.gather(heavy(start), heavy(start + 1000))
    return one + other


def note(step: str, number: int) -> None:
    """Write down, for good, that a body has begun."""
    line = json.dumps([step, number, outlast.step_info().attempt, os.getpid()])
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
    parent[0].send("body")


def work(pipe: Pipe, folder: str) -> str:
    """A worker, until it is told to stop."""
    os.environ["LEDGER"] = f"{folder}/ledger"
    parent.append(pipe)

    async def live() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        pipe.send("ready")  # to be stopped; bodies may begin before the app is quite open
        url = f"sqlite:///{folder}/store.db"
        async with outlast.App(url, workflows=[job], steps=[heavy], lease=LEASE):
            await stop.wait()

    asyncio.run(live())
    return "stopped"


@pytest.mark.proves("I5", "I30", "S-15", "S-17")
async def test_workers_come_and_go(tmp_path: Path) -> None:
    """All runs end as they should, and nothing that was recorded is done again."""
    (tmp_path / "ledger").touch()
    crew = Crew()

    def hire() -> Member:
        worker = crew.hire(work, str(tmp_path))
        assert worker.pipe.recv() == "ready"
        return worker

    async with outlast.App(f"sqlite:///{tmp_path}/store.db", name="client") as client:
        for number in range(RUNS):
            await begin(client, number)
        killed = hire()
        assert await asyncio.to_thread(killed.pipe.recv) == "body"
        killed.kill()
        leaving = hire()
        assert await asyncio.to_thread(leaving.pipe.recv) == "body"
        staying = [hire(), hire()]
        stopped(leaving)
        for number in range(RUNS):
            result = await client.get(f"job-{number}").result(timeout=60)
            assert result == 2 * number + 2 * (number + 1000)
        await check(client, tmp_path)
    for worker in staying:
        stopped(worker)


async def begin(client: outlast.App, number: int) -> None:
    """Start a run for whoever has its code."""
    await client.start(job(number), id=f"job-{number}", here=False)


def stopped(worker: Member) -> None:
    """Stop a worker in good order."""
    assert worker.process.pid is not None
    os.kill(worker.process.pid, signal.SIGTERM)
    while worker.pipe.recv() != "stopped":
        pass
    worker.process.join()
    worker.pipe.close()


async def check(client: outlast.App, folder: Path) -> None:
    """No body ran that history does not know of."""
    ledger = [json.loads(line) for line in (folder / "ledger").read_text().splitlines()]
    bodies = Counter((step, number, attempt) for step, number, attempt, _ in ledger)
    for number in range(RUNS):
        history = await client.get(f"job-{number}").history()
        completed = Counter(e.step_name for e in history if e.type == EventType.STEP_COMPLETED)
        assert set(completed.values()) == {1}
        for event in history:
            started = payload_of(event)
            if isinstance(started, StepStarted) and event.step_name == "prepare":
                # Done where the run is: each attempt is counted before it begins.
                assert bodies["prepare", number, started.attempt] <= 1
