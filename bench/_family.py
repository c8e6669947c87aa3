"""A run with many children, by several workers, each a process of its own:

    python -m bench._family PLACE LEDGER CHILDREN start|work

All of them are workers with the settings as they come. One starts the parent. Each step writes a line to
LEDGER when its body begins. Each worker prints one JSON object: the seconds until the parent had ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

import outlast
from bench._stores import settings_of, store_at
from bench.peers._clock import wait_for_the_word

PARENT = "family"
ledger = -1


@outlast.step
async def double(number: int) -> int:
    """Say that it has begun, and do next to nothing."""
    os.write(ledger, b"%d\n" % number)
    return number * 2


@outlast.workflow
async def one_child(number: int) -> int:
    """One step."""
    return await double(number)


@outlast.workflow
async def family(children: int) -> int:
    """A child for each number, all at once."""
    asked = (one_child(number) for number in range(children))
    return sum(await asyncio.gather(*asked))


async def main(place: str, children: int, role: str) -> None:
    """Work until the parent has ended."""
    async with (
        store_at(place) as store,
        outlast.App(store, workflows=[family, one_child]) as app,
    ):
        await asyncio.get_running_loop().run_in_executor(None, wait_for_the_word)
        begun = time.perf_counter()
        if role == "start":
            await app.start(family(children), id=PARENT)
        while await store.find_one(PARENT) is None:  # noqa: ASYNC110 - begun by another process
            await asyncio.sleep(0.01)
        if await app.get(PARENT).result() != children * (children - 1):
            raise AssertionError("a wrong result")
        seconds = time.perf_counter() - begun
        os.write(
            1, f"{json.dumps({'seconds': seconds, 'settings': settings_of(store)})}\n".encode()
        )


if __name__ == "__main__":
    ledger = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(main(sys.argv[1], int(sys.argv[3]), sys.argv[4]))
