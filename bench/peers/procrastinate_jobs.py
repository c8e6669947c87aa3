"""The same jobs in procrastinate. Run by its own Python, not by ours (bench/_peers.py):

    python -m bench.peers.procrastinate_jobs URL COUNT CONCURRENCY

Written as its documentation has it: jobs deferred in bulk, one worker with so many at once, successful
jobs deleted. Prints one JSON object.
"""

# mypy: ignore-errors
from __future__ import annotations

import asyncio
import json
import sys
import time

from procrastinate import App, PsycopgConnector

from bench.peers._clock import wait_for_the_word

BATCH = 1000


async def main(url: str, count: int, concurrency: int) -> None:
    """Measure, and print what was found."""
    connector = PsycopgConnector(conninfo=url, min_size=concurrency, max_size=concurrency + 2)
    app = App(connector=connector)
    done = 0

    @app.task(name="tiny")
    async def tiny(_number: int) -> None:
        nonlocal done
        done += 1

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        wait_for_the_word()
        begun = time.perf_counter()
        for start in range(0, count, BATCH):
            await tiny.batch_defer_async(
                *({"_number": number} for number in range(start, min(start + BATCH, count)))
            )
        deferred = time.perf_counter()
        await app.run_worker_async(
            wait=False,
            concurrency=concurrency,
            delete_jobs="successful",
            install_signal_handlers=False,
        )
        ended = time.perf_counter()
    if done != count:
        raise AssertionError(f"{done} of {count} were done")
    print(json.dumps({"enqueue": deferred - begun, "work": ended - deferred}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
