"""How much memory runs hold that sleep. In a process of its own, so that nothing that others have
left behind is used again and makes it look small:

    python -m bench._sleepers FOLDER COUNT

Prints one JSON object: bytes of memory before and after, and the seconds it took.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from pathlib import Path

import outlast
from bench._machine import resident
from outlast.stores.sqlite import SqliteStore

AT_ONCE = 200
FIRST = 1_000  # started before the first look: code, caches and connections are there by then


@outlast.step
async def prepare(number: int) -> int:
    """Do next to nothing."""
    return number


@outlast.workflow
async def sleeper(number: int) -> int:
    """A step, and a long sleep."""
    await prepare(number)
    await outlast.sleep(days=30)
    return number


async def main(folder: Path, count: int) -> None:
    """Put so many runs to sleep."""
    async with (
        SqliteStore(folder / "sleepers.db") as store,
        outlast.App(store, workflows=[sleeper]) as app,
    ):
        await _start(app, FIRST)
        gc.collect()
        before, begun = resident(), time.perf_counter()
        await _start(app, count)
        seconds = time.perf_counter() - begun
        gc.collect()
        print(json.dumps({"before": before, "after": resident(), "seconds": seconds}))


async def _start(app: outlast.App, count: int) -> None:
    """Start runs, a few at a time, and wait until these sleep and have left memory."""
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        await asyncio.gather(*(app.start(sleeper, number) for number in numbers))
        await app._engine.settled()  # noqa: SLF001


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
