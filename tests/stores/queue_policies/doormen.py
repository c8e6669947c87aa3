"""Processes that let runs begin from a queue and drive them; they can be killed, and stopped for a while."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import outlast
from outlast.model.queue_policy import QueuePolicy
from outlast.ports.store import Store
from tests.stores.queue_policies.crew import Place
from tests.stores.sqlite_processes.crew import Member

LEASE = 1.0
RULES = QueuePolicy(queue="jobs", concurrency=3, key_concurrency=1)
_ledger = -1


def store_of(place: Place) -> Store:
    """The store that all share."""
    match place.kind:
        case "sqlite":
            from outlast.stores.sqlite import SqliteStore

            return SqliteStore(place.address)
        case "postgres":
            from outlast.stores.postgres import PostgresStore

            return PostgresStore(place.address, schema=place.name)
        case "redis":
            from outlast.stores.redis import RedisStore

            return RedisStore(place.address, prefix=place.name, retention=None)
        case _:
            from outlast.stores.redis import RedisClusterStore

            return RedisClusterStore(place.address, prefix=place.name, retention=None, partitions=4)


@outlast.step
async def work(run_id: str, seconds: float) -> None:
    """Say that it is begun, outside the store."""
    os.write(_ledger, f"{run_id} {time.time()}\n".encode())
    await asyncio.sleep(seconds)


@outlast.workflow
async def job(run_id: str) -> None:
    """Two steps, so that it changes hands in between; some take longer than a ticket's lease."""
    luck = random.Random(run_id)
    seconds = luck.choice([0.01, 0.01, 0.01, 0.03, 0.03, 0.7 * LEASE])
    await work_whoever_dies(run_id, seconds)
    await work_whoever_dies(run_id, seconds)


async def work_whoever_dies(run_id: str, seconds: float) -> None:
    """The step that every disturbance hits by chance is given up after the third: begin it anew."""
    while True:
        try:
            return await work(run_id, seconds)
        except outlast.errors.StepFailed as failure:
            if failure.error_type != "Interrupted":
                raise


def attend(pipe: Pipe, place: Place, ledger: str) -> str:
    """The job of a process: until it is told to stop, or killed."""
    global _ledger
    _ledger = os.open(ledger, os.O_WRONLY | os.O_APPEND)
    return asyncio.run(_attend(pipe, place))


async def _attend(pipe: Pipe, place: Place) -> str:
    async with (
        store_of(place) as store,
        outlast.App(store, workflows=[job], queues=[RULES], lease=LEASE),
    ):
        while not pipe.poll():  # noqa: ASYNC110 - a pipe has no event
            await asyncio.sleep(0.02)
    return "stopped"


class Doormen:
    """Some of them, with one ledger."""

    def __init__(self, place: Place, ledger: Path, size: int, luck: random.Random) -> None:
        ledger.touch()
        self._place, self._ledger, self._luck = place, ledger, luck
        self._members = [self._hire() for _ in range(size)]

    def _hire(self) -> Member:
        return Member(attend, (self._place, str(self._ledger)))

    def kill(self) -> None:
        """One of them, without a warning; another takes its place."""
        number = self._luck.randrange(len(self._members))
        self._members[number].kill()
        self._members[number] = self._hire()

    def stop(self) -> Member:
        """One of them stands still, with all it holds."""
        member = self._luck.choice(self._members)
        self._signal(member, signal.SIGSTOP)
        return member

    def go_on(self, member: Member) -> None:
        """It does not know that time has passed."""
        self._signal(member, signal.SIGCONT)

    def dismiss(self) -> None:
        """All of them."""
        for member in self._members:
            member.kill()

    def begun(self) -> dict[str, float]:
        """When each run began to work."""
        first: dict[str, float] = {}
        for line in self._ledger.read_text().splitlines():
            run_id, at = line.split()
            first[run_id] = min(float(at), first.get(run_id, float(at)))
        return first

    @staticmethod
    def _signal(member: Member, number: int) -> None:
        assert member.process.pid is not None
        os.kill(member.process.pid, number)
