"""A map over many items, in a process of its own, so that its memory can be told:

    python -m bench._mapping PLACE ITEMS AT_ONCE

Prints one JSON object: the seconds, the most memory that it had in bytes, before and in all, and how
many runs there are.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time

import outlast
from bench._stores import settings_of, store_at
from bench.peers._clock import wait_for_the_word


@outlast.step
async def double(number: int) -> int:
    """Do next to nothing."""
    return number * 2


@outlast.workflow
async def fan_out(items: int, at_once: int) -> int:
    """A step for each item."""
    return sum(await outlast.map(double, range(items), concurrency=at_once))


async def main(place: str, items: int, at_once: int) -> None:
    """Measure."""
    async with store_at(place) as store, outlast.App(store, workflows=[fan_out]) as app:
        await (await app.start(fan_out(10, at_once))).result()
        wait_for_the_word()
        before = _most()
        begun = time.perf_counter()
        if await (await app.start(fan_out(items, at_once))).result() != items * (items - 1):
            raise AssertionError("a wrong result")
        seconds = time.perf_counter() - begun
        runs = sum((await store.counts()).values())
        told = {"seconds": seconds, "before": before, "most": _most(), "runs": runs - 1}
        print(json.dumps({**told, "settings": settings_of(store)}))


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
