"""Ten steps in sayiir, see bench/peers/_clock.py: ten tasks in a row, `run_durable_workflow` in one of
eight threads, since it blocks; 4 or 32 of them made no clear difference. It has PostgreSQL and memory, no other
store."""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

from sayiir import Flow, PostgresBackend, run_durable_workflow, task

from bench.peers._clock import STEPS, race

THREADS = 8


def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


def ten_steps():
    """Ten tasks in a row."""
    flow = Flow("ten_steps")
    for count in range(STEPS):
        flow = flow.then(task(name=f"increase-{count}")(increase))
    return flow.build()


async def main(url: str) -> None:
    """Race."""
    backend, workflow = PostgresBackend(url), ten_steps()
    pool = ThreadPoolExecutor(THREADS)

    def run() -> int:
        return run_durable_workflow(workflow, uuid.uuid4().hex, 1, backend=backend).output

    async def once() -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, run)

    await race(once, "PostgreSQL, as it comes")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
