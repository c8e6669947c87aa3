"""Real processes on PostgreSQL, with SQS as their wake-up channel and a rough road between."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import pytest

import outlast
from outlast.queues.sqs import SqsWakeups
from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.places import SCHEMA, FreshStore, direct
from tests.stores.sqlite_processes.crew import Crew
from tests.unit.queues.sqs.apps import waiting
from tests.unit.queues.sqs.places import client, own_prefix
from tests.unit.queues.sqs.rough import Rough

pytestmark = pytest.mark.server
RUNS = 30


@outlast.step
async def prepare(number: int) -> int:
    note(f"prepare {number}")
    return number


@outlast.step(queue="heavy")
async def heavy(number: int) -> int:
    note(f"heavy {number}")
    return 2 * number


@outlast.workflow
async def job(number: int) -> int:
    start = await prepare(number)
    await outlast.sleep(0.1)
    one, other = await asyncio.gather(heavy(start), heavy(start + 1000))
    return one + other


def note(line: str) -> None:
    """Write down, for good, that a body has begun."""
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def work(pipe: Pipe, folder: str, queue: str, seed: int) -> dict[str, int]:
    """A worker that hears others only by SQS, until it is told to stop; what befell its messages."""
    os.environ["LEDGER"] = f"{folder}/ledger"
    road = Rough(client(), seed=seed, loses=True)

    async def live() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        store = PostgresStore(direct(), schema=SCHEMA, notify=False)
        channel = SqsWakeups(queue, road)
        async with (
            store,
            outlast.App(store, workflows=[job], steps=[heavy], wakeup_channel=channel),
        ):
            pipe.send("ready")
            await stop.wait()

    asyncio.run(live())
    return road.troubles


@pytest.mark.proves("I23", "I7", "I24", "M-23")
async def test_two_workers_on_a_rough_road(tmp_path: Path) -> None:
    """A third of all messages is lost, doubled, delayed or overtaken. Every run completes, no effect
    is doubled, and when all is quiet, no message is left."""
    (tmp_path / "ledger").touch()
    queue, crew = f"{own_prefix()}wakeups", Crew()
    async with FreshStore() as store:
        channel = SqsWakeups(queue, Rough(client(), seed=0, loses=True), create=True)
        async with outlast.App(store, name="client", wakeup_channel=channel) as server:
            workers = [crew.hire(work, str(tmp_path), queue, seed) for seed in (1, 2)]
            for worker in workers:
                assert await asyncio.to_thread(worker.pipe.recv) == "ready"
            for number in range(RUNS):
                await server.start(job(number), id=f"job-{number}", here=False)
            for number in range(RUNS):
                result = await server.get(f"job-{number}").result(timeout=60)
                assert result == 2 * number + 2 * (number + 1000)
            async with asyncio.timeout(60):
                while sum(waiting(queue)):  # noqa: ASYNC110 - nobody here could tell
                    await asyncio.sleep(0.1)
            assert await store.claim_runs("looks", ttl=1) == []
    troubles = Counter[str]()
    for worker in workers:
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGTERM)
        troubles.update(await asyncio.to_thread(worker.pipe.recv))
        worker.process.join()
        worker.pipe.close()
    done = Counter((tmp_path / "ledger").read_text().splitlines())
    numbers = range(RUNS)
    assert done == Counter(
        [f"prepare {n}" for n in numbers] + [f"heavy {n + k}" for n in numbers for k in (0, 1000)]
    )
    # How many messages there were, and so how many were lost or doubled, is up to the machine.
    print(f"on the way: {dict(troubles)}")
