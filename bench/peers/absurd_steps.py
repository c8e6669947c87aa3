"""Ten steps in Absurd, see bench/peers/_clock.py. Written as its documentation has it: a worker, tasks
that are spawned, and results that are looked for. Workers look for tasks every 10 ms when they find
none, 25 times as often as by default, and so does the client for results, where `await_task_result`
would wait for 50 ms at first and twice as long each time: its latency would be nothing but that. Less
than 10 ms is slower. A worker has one connection, so that several of them in the process are faster than
one; each is asked for its share of what is under way at once."""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from absurd_sdk import AsyncAbsurd

from bench.peers._clock import STEPS, race

POLL = 0.01
WORKERS = 8


async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


async def ten_steps(params, context) -> int:
    """Ten steps in a row."""
    number = params
    for count in range(STEPS):
        number = await context.step(f"increase-{count}", lambda n=number: increase(n))
    return number


def prepare(url: str) -> None:
    """The schema, and a queue."""
    tool = str(Path(sys.executable).with_name("absurdctl"))
    for command in (["init", "-d", url], ["create-queue", "-d", url, "default"]):
        subprocess.run([tool, *command], check=True, stdout=subprocess.DEVNULL)


async def result_of(client: AsyncAbsurd, id) -> int:
    """What has come of a task, as soon as a look finds it."""
    while (found := await client.fetch_task_result(id)) is None or found.state != "completed":
        if found is not None and found.state in ("failed", "cancelled"):
            raise AssertionError(f"a task has {found.state}")
        await asyncio.sleep(POLL)
    return found.result


async def main(url: str) -> None:
    """Race."""
    prepare(url)
    client = AsyncAbsurd(url)
    each = -(-int(sys.argv[2]) // WORKERS)
    working = []
    for _ in range(WORKERS):
        worker = AsyncAbsurd(url)
        worker.register_task(name="ten_steps")(ten_steps)
        loop = worker.start_worker(concurrency=each, poll_interval=POLL)
        working.append(asyncio.create_task(loop))

    async def once() -> int:
        spawned = await client.spawn("ten_steps", 1, queue="default")
        return await result_of(client, spawned["task_id"])

    await race(once, "PostgreSQL, as it comes")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
