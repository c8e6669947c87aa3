"""A worker process of test_flow_processes.py: takes, notes when it began and ended, and acknowledges."""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress

from outlast.errors import Fenced, NotFound
from outlast.stores.redis import RedisQueue

QUEUES = ("gpu/render", "gpu/train")
LEASE = 1.0


def queue_at(url: str, prefix: str, partitions: int) -> RedisQueue:
    """The queue that all share."""
    parts = partitions if partitions > 1 else None
    return RedisQueue(url, prefix=prefix, partitions=parts, max_attempts=100, poll=0.02)


def work(url: str, prefix: str, partitions: int, ledger: str) -> None:
    """Until it is killed."""
    asyncio.run(_work(url, prefix, partitions, ledger))


async def _work(url: str, prefix: str, partitions: int, ledger: str) -> None:
    luck = random.Random(os.getpid())
    book = os.open(ledger, os.O_WRONLY | os.O_APPEND)

    def note(*what: object) -> None:
        os.write(book, (" ".join(map(str, what)) + "\n").encode())

    async with queue_at(url, prefix, partitions) as queue:
        while True:
            # One that asks for less sees other tasks in front: those who look at once choose apart.
            names = luck.choice([QUEUES, QUEUES[:1], QUEUES[1:]])
            owner = f"w{os.getpid()}"
            taken = await queue.take_many(names, owner=owner, visibility=LEASE, limit=2)
            for one in taken:
                assert one.claim.expires_at is not None
                until = one.claim.expires_at.timestamp()
                note("begin", one.claim.token, one.task.id, one.task.key or "-", time.time(), until)
            for one in taken:
                await asyncio.sleep(luck.uniform(0.0, 0.02))
                note("end", one.claim.token, time.time())
                with suppress(Fenced, NotFound):
                    await queue.ack(one.claim)
                    note("done", one.task.id)
            if not taken:
                await asyncio.sleep(0.001)
