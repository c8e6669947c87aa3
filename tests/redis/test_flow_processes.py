"""The rules of a queue under processes that are killed: never more at once than allowed, nothing leaked."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

import pytest

from outlast.model import Task
from outlast.model.flow import Flow
from outlast.stores.redis.looking import standing
from tests.redis.flow_worker import LEASE, QUEUES, queue_at, work
from tests.redis.servers import CLUSTER, SINGLE, own_prefix, url_of

pytestmark = pytest.mark.server

WORKERS, KILLS, TASKS = 6, 8, 160
MOST, MOST_OF_A_KEY = 3, 1
KEYS = ("", "a", "b", "c", "d")


class Interval(NamedTuple):
    """Somebody was at work on a task of a key, and might have been until its lease ended."""

    begin: float
    end: float
    key: str


class Place(NamedTuple):
    """Where the queue is."""

    url: str
    prefix: str
    partitions: int


def read(ledger: Path) -> tuple[list[Interval], set[str], set[str]]:
    """What was under way when, what has begun, and what is known to be done. One who was killed has its task until its lease
    ends; so has one that was slower than its lease."""
    ends: dict[str, float] = {}
    begun: list[tuple[str, str, float, float]] = []
    tasks: set[str] = set()
    done: set[str] = set()
    for line in ledger.read_text().splitlines():
        match line.split():
            case ["begin", token, id, key, at, until]:
                tasks.add(id)
                begun.append((token, key, float(at), float(until)))
            case ["end", token, at]:
                ends[token] = float(at)
            case ["done", id]:
                done.add(id)
    found = [
        Interval(at, min(until, ends.get(token, until)), key) for token, key, at, until in begun
    ]
    return found, tasks, done


def most_at_once(intervals: list[Interval]) -> int:
    """How many of them there were at the same time."""
    steps = sorted(
        step for one in intervals if one.end > one.begin for step in ((one.begin, 1), (one.end, -1))
    )
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A file that all workers append to."""
    path = tmp_path / "ledger"
    path.touch()
    return path


class Crew:
    """Worker processes."""

    def __init__(self, place: Place, ledger: Path) -> None:
        self._context = get_context("forkserver")
        self._context.set_forkserver_preload(["tests.redis.flow_worker"])
        self._args = (*place, str(ledger))
        self._workers = [self._start() for _ in range(WORKERS)]

    def _start(self) -> ForkServerProcess:
        worker = self._context.Process(target=work, args=self._args, daemon=True)
        worker.start()
        return worker

    def kill(self, number: int) -> None:
        """One of them, without a warning; another takes its place."""
        self._end(number)
        self._workers[number] = self._start()

    def _end(self, number: int) -> None:
        pid = self._workers[number].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._workers[number].join()

    def dismiss(self) -> None:
        """All of them."""
        for number in range(WORKERS):
            self._end(number)


async def fill(place: Place) -> set[str]:
    """Tasks of many runs, so that they are in all partitions; the ids of all."""
    tasks = [
        Task(id=f"t{n}", run_id=f"r{n}", key=KEYS[n % len(KEYS)], priority=n % 3)
        for n in range(TASKS)
    ]
    async with queue_at(*place) as queue:
        flow = Flow(queue="gpu", concurrency=MOST, key_concurrency=MOST_OF_A_KEY)
        await queue.set_flow(flow, by="test")
        for number, name in enumerate(QUEUES):
            await queue.enqueue(name, tasks[number :: len(QUEUES)])
    return {task.id for task in tasks}


async def left(place: Place) -> tuple[int, int]:
    """How many tasks there are, and how many slots are taken."""
    async with queue_at(*place) as queue:
        stats = await queue.stats("gpu")
        server = await queue._session.server()
        slots = (await standing(server, "gpu", [], timeout=None)).in_flight
        return stats.ready + stats.delayed + stats.in_flight, slots


async def until(deadline: float) -> AsyncIterator[None]:
    """Again and again, a little later each time; an error if it takes too long."""
    while time.monotonic() < deadline:
        yield
        await asyncio.sleep(0.05)
    pytest.fail("it took too long")


@pytest.mark.proves("I22")
@pytest.mark.parametrize(("variable", "partitions"), [(SINGLE, 1), (CLUSTER, 4)])
async def test_limits_hold_whoever_dies(variable: str, partitions: int, ledger: Path) -> None:
    """Processes take tasks and are killed at any moment. There are never more under way than the queue
    allows, nor more of a key; all tasks are done in the end, and every slot is given back."""
    place = Place(url_of(variable), own_prefix(), partitions)
    everything = await fill(place)
    crew, luck = Crew(place, ledger), random.Random(7)
    try:
        deadline = time.monotonic() + 60
        for kills in range(KILLS):
            wanted = (kills + 1) * TASKS // (2 * KILLS)
            async for _ in until(deadline):
                if len(read(ledger)[2]) >= wanted:
                    break
            crew.kill(luck.randrange(WORKERS))
        async for _ in until(deadline):
            if (await left(place))[0] == 0:
                break
    finally:
        crew.dismiss()
    intervals, begun, _ = read(ledger)
    assert begun == everything
    assert most_at_once(intervals) <= MOST
    for key in KEYS[1:]:
        assert most_at_once([one for one in intervals if one.key == key]) <= MOST_OF_A_KEY
    assert most_at_once(intervals) > 1  # they were at work together
    async for _ in until(time.monotonic() + LEASE + 10):
        if (await left(place))[1] == 0:
            break


def test_the_ledger_counts() -> None:
    """What it is read by is right: one after the other is one, one in another is two."""
    apart = [Interval(1, 2, "a"), Interval(2, 3, "a"), Interval(4, 5, "")]
    assert all(one.end <= other.begin for one, other in pairwise(apart))
    assert most_at_once(apart) == 1
    assert most_at_once([*apart, Interval(1.5, 4.5, "b")]) == 2
