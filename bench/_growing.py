"""Big results and long runs of ours, to stand next to a peer's, in a process of its own:

    python -m bench._growing PLACE SIZES MARKS

SIZES is a list in JSON of bytes that a step returns, MARKS one of steps that come before one in a run.
Prints one JSON object: milliseconds of a workflow with such a step, and of such a step.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import outlast
from bench._stores import settings_of, store_at
from bench.peers._clock import wait_for_the_word
from bench.peers._growing import Begun, growing


@outlast.step
async def produce(size: int) -> str:
    """So many bytes."""
    return "x" * size


@outlast.workflow
async def carry(size: int) -> int:
    """One step with a big result."""
    return len(await produce(size))


@outlast.step
async def note(number: int) -> int:
    """Say when it began."""
    begun.append(time.perf_counter())
    return number + 1


@outlast.workflow
async def in_a_row(steps: int) -> int:
    """So many steps."""
    number = 0
    for _ in range(steps):
        number = await note(number)
    return number


begun: Begun = []


async def main(place: str, sizes: list[int], marks: list[int]) -> None:
    """Measure."""
    async with store_at(place) as store, outlast.App(store, workflows=[carry, in_a_row]) as app:

        async def big(size: int) -> int:
            return await (await app.start(carry(size))).result()

        async def long(steps: int) -> int:
            return await (await app.start(in_a_row(steps))).result()

        await big(1)
        wait_for_the_word()
        found = await growing(big, long, begun, sizes, marks)
        print(json.dumps({**found, "settings": settings_of(store)}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))
