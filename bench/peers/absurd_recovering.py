"""Workflows that are killed half way, in Absurd, see bench/recovery.py:

    python -m bench.peers.absurd_recovering begin|resume PLACE LEDGER COUNT LEASE

A claim lasts LEASE seconds, and whoever asks for tasks takes those whose claim has ended.
"""

# mypy: ignore-errors
# ruff: noqa: ASYNC240 - a small file, before and after
from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from absurd_sdk import AsyncAbsurd

from bench.peers._clock import STEPS, TAKES
from bench.peers.absurd_steps import POLL, WORKERS, prepare, result_of

ledger = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def ten_steps(_params, context) -> int:
    """Ten steps in a row."""
    number = 0

    async def increase() -> int:
        """Say that it has begun, and take a while."""
        os.write(ledger, f"{context.task_id} {number}\n".encode())
        await asyncio.sleep(TAKES)
        return number + 1

    for count in range(STEPS):
        number = await context.step(f"increase-{count}", increase)
    return number


async def main(how: str, url: str, ids: Path, count: int, lease: int) -> None:
    """Begin, or see that all come to their end."""
    if how == "begin":
        prepare(url)
    client = AsyncAbsurd(url)
    if how == "begin":
        spawned = [await client.spawn("ten_steps", {}, queue="default") for _ in range(count)]
        ids.write_text("\n".join(str(one["task_id"]) for one in spawned))
    working = []
    for _ in range(WORKERS):
        worker = AsyncAbsurd(url)
        worker.register_task(name="ten_steps")(ten_steps)
        each = -(-count // WORKERS)
        loop = worker.start_worker(claim_timeout=lease, concurrency=each, poll_interval=POLL)
        working.append(asyncio.create_task(loop))
    for id in ids.read_text().split():
        if await result_of(client, id) != STEPS:
            raise AssertionError("a wrong result")
    os._exit(0)


if __name__ == "__main__":
    how, url, at, count, lease = sys.argv[1:6]
    asyncio.run(main(how, url, Path(f"{at}.started"), int(count), int(float(lease))))
