"""Tiny jobs of ours: as tasks in a queue, and as runs of a workflow of one step."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import outlast
from bench._arena import made_ready
from outlast.model import Task
from outlast.ports import Store


class Jobs(NamedTuple):
    """Seconds to enqueue so many jobs, and to do them."""

    enqueue: float
    work: float


TOGETHER = 100
"""Jobs that are added, taken and under way at once."""

LEASE = 60.0
done = 0
over: asyncio.Event


@outlast.step
async def tiny(number: int) -> None:  # noqa: ARG001 - what a job is about
    """Do next to nothing, and tell when it was the last."""
    global done
    done -= 1
    if done == 0:
        over.set()


@outlast.workflow
async def job(number: int) -> None:
    """One step."""
    await tiny(number)


async def as_runs(store: Store, count: int) -> Jobs:
    """Begin so many runs, then open a worker and wait until the last one has ended."""
    global done, over
    done, over = count, asyncio.Event()
    async with store:
        async with outlast.App(store, name="client") as client:
            with made_ready():
                begun = time.perf_counter()
                for first in range(0, count, TOGETHER):
                    batch = range(first, min(first + TOGETHER, count))
                    await asyncio.gather(*(_begin(client, number) for number in batch))
                added = time.perf_counter()
        with made_ready():
            opened = time.perf_counter()
            async with outlast.App(store, workflows=[job], name="worker") as worker:
                await over.wait()
                await worker._engine.settled()  # noqa: SLF001 - the last commits too
                ended = time.perf_counter()
    return Jobs(added - begun, ended - opened)


async def _begin(client: outlast.App, number: int) -> None:
    await client.start(job, number, id=f"job-{number}", here=False)


async def as_tasks(store: Store, count: int) -> Jobs:
    """Put so many tasks into a queue, then take them, do them, and acknowledge what is done."""
    async with store:
        queue = store.queue()
        tasks = [Task(id=f"job-{number}", name="job") for number in range(count)]
        with made_ready():
            begun = time.perf_counter()
            for first in range(0, count, TOGETHER):
                await queue.enqueue("jobs", tasks[first : first + TOGETHER])
            added = time.perf_counter()
            left = count
            while left:
                taken = await queue.take_many(
                    ["jobs"], owner="worker", visibility=LEASE, limit=TOGETHER
                )
                await store.send([], finishes=[delivery.claim for delivery in taken])
                left -= len(taken)
            ended = time.perf_counter()
    return Jobs(added - begun, ended - added)
