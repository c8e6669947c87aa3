"""Worker processes on one queue that can be killed, and a ledger of what they did.

Each takes, writes down outside the store when it began and ended, and acks. Times are those of this
machine, which are the servers' too.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import NamedTuple

from outlast.errors import Fenced, NotFound, TryAgain
from outlast.ports.queue import Queue
from tests.stores.sqlite_processes.crew import Member

QUEUES = ("gpu/render", "gpu/train")
LEASE = 1.0


class Place(NamedTuple):
    """Where the queue is: a kind of store, an address, and a name of the test's own there."""

    kind: str
    address: str
    name: str = ""

    def queue(self) -> Queue:
        """The queue that all share."""
        match self.kind:
            case "sqlite":
                from outlast.stores.sqlite import SqliteQueue

                return SqliteQueue(self.address, max_attempts=1000, poll=0.02)
            case "postgres":
                from outlast.stores.postgres import PostgresQueue

                return PostgresQueue(self.address, schema=self.name, max_attempts=1000, poll=0.02)
            case _:
                from outlast.stores.redis import RedisQueue

                parts = 4 if self.kind == "redis-cluster" else None
                return RedisQueue(
                    self.address, prefix=self.name, partitions=parts, max_attempts=1000, poll=0.02
                )


class Interval(NamedTuple):
    """Somebody was at work on a task, and may have been until its lease ended."""

    claimed: float
    begun: float
    ended: float
    key: str
    task: str


def work(pipe: Pipe, place: Place, ledger: str, number: int) -> str:
    """The job of a process: until it is told to stop, or killed."""
    return asyncio.run(_work(pipe, place, ledger, number))


async def _work(pipe: Pipe, place: Place, ledger: str, number: int) -> str:
    luck = random.Random(number)
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND)

    def note(*what: object) -> None:
        os.write(book, (" ".join(map(str, what)) + "\n").encode())

    async with place.queue() as queue:
        while not pipe.poll():
            # One that asks for less sees other tasks in front: those who look at once choose apart.
            names = luck.choice([QUEUES, QUEUES[:1], QUEUES[1:]])
            taken = []
            with suppress(TryAgain):
                taken = await queue.take_many(
                    names, owner=f"w{number}", visibility=LEASE, limit=luck.randint(1, 3)
                )
            for one in taken:
                assert one.claim.expires_at is not None
                claimed = one.claim.claimed_at.timestamp()
                until = one.claim.expires_at.timestamp()
                note(
                    "begin",
                    number,
                    one.claim.token,
                    one.task.id,
                    one.task.key or "-",
                    claimed,
                    time.time(),
                    until,
                )
            for one in taken:
                await asyncio.sleep(luck.uniform(0.0, 0.02))
                note("end", one.claim.token, time.time())
                with suppress(Fenced, NotFound, TryAgain):  # too slow: it is another's by now
                    await queue.ack(one.claim)
            if not taken:
                await asyncio.sleep(0.002)  # a look is not for nothing
    return "stopped"


class Crew:
    """Workers with one ledger."""

    def __init__(self, place: Place, ledger: Path, size: int) -> None:
        ledger.touch()
        self._place, self._ledger = place, ledger
        self._hired = 0
        self._died: dict[str, float] = {}
        self._members = [self._hire() for _ in range(size)]
        self._numbers = list(range(1, size + 1))

    def _hire(self) -> Member:
        self._hired += 1
        return Member(work, (self._place, str(self._ledger), self._hired))

    def kill(self, number: int) -> None:
        """One of them, without a warning; another takes its place."""
        self._died[str(self._numbers[number])] = time.time()
        self._members[number].kill()
        self._members[number] = self._hire()
        self._numbers[number] = self._hired

    def dismiss(self) -> None:
        """All of them."""
        for member in self._members:
            member.kill()

    def intervals(self) -> list[Interval]:
        """What was under way when. One who was killed has its task until its lease ends, or until its
        death where the database knows of that; so has one that was slower than its lease."""
        died = self._died if self._place.kind in ("postgres", "sqlite") else {}
        ends: dict[str, float] = {}
        begun: list[tuple[str, str, str, float, float, float]] = []
        for line in self._ledger.read_text().splitlines():
            match line.split():
                case ["begin", number, token, task, key, claimed, at, until]:
                    end = min(float(until), died.get(number, float(until)))
                    begun.append((token, task, key, float(claimed), float(at), end))
                case ["end", token, at]:
                    ends[token] = float(at)
        return [
            Interval(claimed, at, min(until, ends.get(token, until)), key.strip("-"), task)
            for token, task, key, claimed, at, until in begun
        ]


def most_at_once(intervals: list[Interval]) -> int:
    """How many of them there were at the same time."""
    steps = sorted(
        step
        for one in intervals
        if one.ended > one.begun
        for step in ((one.begun, 1), (one.ended, -1))
    )
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most
