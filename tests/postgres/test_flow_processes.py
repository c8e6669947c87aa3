"""Limits hold over processes that are killed in the middle of their work."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import msgspec
import pytest

from outlast.errors import Busy, Fenced, NotFound
from outlast.model.flow import Flow, Rate
from outlast.model.task import Delivery, Task
from outlast.stores.postgres import PostgresQueue
from tests.postgres.places import SCHEMA, FreshQueue, direct
from tests.sqlite_processes.crew import Member

pytestmark = pytest.mark.server

WORKERS, KILLS, TASKS = 6, 6, 120
LEASE = 0.8
QUEUES = ("gpu/render", "gpu/train")
KEYS = ("", *(f"k{n}" for n in range(7)))
RULES = Flow(queue="gpu", concurrency=3, key_concurrency=1, rate=Rate(20, 0.25))


class Work(msgspec.Struct):
    """A task under way, in the time of this machine, which is the server's too."""

    token: int
    key: str
    claimed: float
    begun: float
    lease: float
    ended: float = 0.0

    @property
    def until(self) -> float:
        """When it was over: ended, killed, or, for one that was too slow, no longer its own."""
        return min(self.ended or self.lease, self.lease)


class Worker:
    """In its process: takes, does, acks, until told to stop. What begins and what ends is written
    down outside, at once."""

    def __init__(self, pipe: Pipe, schema: str, number: int, ledger: Path) -> None:
        self._pipe = pipe
        self._schema = schema
        self._name = f"w{number}"
        self._chance = random.Random(number)
        self._file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def live(self) -> str:
        """Be a worker."""
        async with PostgresQueue(direct(), schema=self._schema, max_attempts=1000) as queue:
            while not self._pipe.poll():
                with suppress(Busy):
                    found = await queue.take_many(
                        self._chance.sample(QUEUES, self._chance.randint(1, 2)),
                        owner=self._name,
                        visibility=LEASE,
                        limit=self._chance.randint(1, 3),
                    )
                    await asyncio.gather(*(self._do(queue, one) for one in found))
                    if not found:
                        await asyncio.sleep(0.005)  # a look is not for nothing
        return "stopped"

    async def _do(self, queue: PostgresQueue, one: Delivery) -> None:
        claim = one.claim
        assert claim.expires_at is not None
        begun, lease = time.time(), claim.expires_at.timestamp()
        work = Work(claim.token, one.task.key, claim.claimed_at.timestamp(), begun, lease)
        self._write(work)
        await asyncio.sleep(self._chance.uniform(0.005, 0.03))
        work.ended = time.time()
        self._write(work)
        with suppress(Fenced, NotFound):  # too slow: it is another's by now
            await queue.ack(claim)

    def _write(self, work: Work) -> None:
        os.write(self._file, msgspec.json.encode(work) + b"\n")


def work(pipe: Pipe, schema: str, number: int, ledger: str) -> str:
    """The job of a process."""
    return asyncio.run(Worker(pipe, schema, number, Path(ledger)).live())


class Crew:
    """Workers, each with a ledger."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._living: dict[int, Member] = {}
        self._deaths: dict[int, float] = {}

    def hire(self) -> None:
        """One more."""
        number = len(self._living) + len(self._deaths)
        self._living[number] = Member(work, (SCHEMA, number, str(self._folder / str(number))))

    def kill_one(self) -> None:
        """kill -9 of one that has something under way, and another in its place."""
        for number in random.sample(sorted(self._living), len(self._living)):
            if any(not one.ended for one in self._read(number)):
                self._deaths[number] = time.time()
                self._living.pop(number).kill()
                self.hire()
                return

    def stop(self) -> None:
        """Tell all, and wait for them."""
        for member in self._living.values():
            member.pipe.send("stop")
        for member in self._living.values():
            assert member.pipe.recv() == "stopped"
            member.process.join()

    def dismiss(self) -> None:
        """End what is left of a test that failed."""
        for member in self._living.values():
            member.kill()

    def done(self) -> list[Work]:
        """All that was begun."""
        return [one for number in (*self._living, *self._deaths) for one in self._read(number)]

    def _read(self, number: int) -> Iterable[Work]:
        path = self._folder / str(number)
        found: dict[int, Work] = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            with suppress(msgspec.DecodeError):  # of one that was killed while writing
                one = msgspec.json.decode(line, type=Work)
                found[one.token] = one
        for one in found.values():
            if not one.ended and number in self._deaths:
                one.ended = self._deaths[number]
        return found.values()


def most_at_once(done: Iterable[Work]) -> int:
    """How many were under way at the same time, at the busiest moment."""
    changes = [
        change for one in done for change in ((one.begun, 1), (max(one.until, one.begun), -1))
    ]
    count = most = 0
    for _, change in sorted(changes):
        count += change
        most = max(most, count)
    return most


@pytest.mark.timeout(120)
@pytest.mark.proves("I22")
async def test_limits_hold_over_processes_that_die(tmp_path: Path) -> None:
    """Three at once, one of a key, so many in a while: never more, whoever is killed; what the dead
    had is done by others, and no place is lost."""
    crew = Crew(tmp_path)
    async with FreshQueue() as queue:
        await queue.set_flow(RULES, by="test")
        for name in QUEUES:
            await queue.enqueue(
                name, [Task(id=f"t{n}", key=KEYS[n % len(KEYS)]) for n in range(TASKS // 2)]
            )
        try:
            for _ in range(WORKERS):
                await asyncio.to_thread(crew.hire)
            kills = 0
            while (stats := await queue.stats("gpu")).ready + stats.in_flight + stats.delayed:
                if kills < KILLS and len(crew.done()) > (kills + 1) * TASKS / (KILLS + 2):
                    await asyncio.to_thread(crew.kill_one)
                    kills += 1
                await asyncio.sleep(0.01)
            await asyncio.to_thread(crew.stop)
        finally:
            await asyncio.to_thread(crew.dismiss)
        assert (kills, stats.dead) == (KILLS, 0)
    done = crew.done()
    assert len(done) >= TASKS
    assert most_at_once(done) == 3
    for key in KEYS[1:]:
        assert most_at_once(one for one in done if one.key == key) == 1
    starts = sorted(one.claimed for one in done)
    assert RULES.rate is not None
    gaps = zip(starts, starts[RULES.rate.limit :], strict=False)
    assert all(later - first > RULES.rate.per - 0.000_002 for first, later in gaps)
