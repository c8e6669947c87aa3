"""Tiny jobs of ours: as tasks in a queue that a function is called for, and as runs of a workflow of one
step."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

import msgspec
from msgspec import Raw

import outlast
from bench.peers._clock import made_ready
from outlast.model import Delivery, Task
from outlast.ports import Queue, Store


class Jobs(NamedTuple):
    """Seconds to enqueue so many jobs, and to do them."""

    enqueue: float
    work: float


TOGETHER = 100
"""Jobs that are added, taken and under way at once."""

CALLERS = 8
"""Who add them one by one, as many as a peer's threads."""

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
                await worker._engine.drivers.settled()  # noqa: SLF001 - the last commits too
                ended = time.perf_counter()
    return Jobs(added - begun, ended - opened)


async def _begin(client: outlast.App, number: int) -> None:
    await client.start(job(number), id=f"job-{number}", here=False)


async def work(number: int) -> None:  # noqa: ARG001 - what a job is about
    """Do next to nothing, and count that."""
    global done
    done -= 1


HANDLERS = {"job": work}


async def as_tasks(store: Store, count: int) -> Jobs:
    """Put so many tasks into a queue, a hundred at a time, and do them."""
    return await _as_tasks(store, count, callers=1, together=TOGETHER)


async def one_by_one(store: Store, count: int) -> Jobs:
    """The same, but several callers add them, each one task at a time."""
    return await _as_tasks(store, count, callers=CALLERS, together=1)


async def _as_tasks(store: Store, count: int, *, callers: int, together: int) -> Jobs:
    """Add tasks, then take them, call a function for each, and acknowledge those for which it has
    returned."""
    global done
    done = count
    tasks = [
        Task(id=f"job-{number}", name="job", input=Raw(b'{"number":%d}' % number))
        for number in range(count)
    ]
    waiting = iter([tasks[first : first + together] for first in range(0, count, together)])
    async with store:
        queue = store.queue()

        async def add() -> None:
            for batch in waiting:
                await queue.enqueue("jobs", batch)

        with made_ready():
            begun = time.perf_counter()
            await asyncio.gather(*(add() for _ in range(callers)))
            added = time.perf_counter()
            left = count
            while left:
                taken = await queue.take_many(
                    ["jobs"], owner="worker", visibility=LEASE, limit=TOGETHER
                )
                finished = [one.claim for one in taken if await _is_done(queue, one)]
                await store.send([], finishes=finished)
                left -= len(finished)
            ended = time.perf_counter()
    if done:
        raise AssertionError(f"{done} jobs were not done")
    return Jobs(added - begun, ended - added)


async def _is_done(queue: Queue, delivery: Delivery) -> bool:
    """Call the function that a task names with what it carries; one that fails is handed out again."""
    try:
        task = delivery.task
        await HANDLERS[task.name](**msgspec.json.decode(task.input or b"{}"))
    except Exception:  # noqa: BLE001 - whatever a function raises
        await queue.nack(delivery.claim, delay=1.0)
        return False
    return True
