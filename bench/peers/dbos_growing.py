"""Big results and long runs in DBOS, see bench/_growing.py: `python -m bench.peers.dbos_growing PLACE
SIZES MARKS`. Written as its documentation has it."""

# mypy: ignore-errors
# ruff: noqa: I001 - the newer SQLite has to be there before DBOS looks for one
from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from bench.peers import _sqlite
from bench.peers._clock import wait_for_the_word
from bench.peers._growing import growing

from dbos import DBOS

begun = []


@DBOS.step()
async def produce(size: int) -> str:
    """So many bytes."""
    return "x" * size


@DBOS.workflow()
async def carry(size: int) -> int:
    """One step with a big result."""
    return len(await produce(size))


@DBOS.step()
async def note(number: int) -> int:
    """Say when it began."""
    begun.append(time.perf_counter())
    return number + 1


@DBOS.workflow()
async def in_a_row(steps: int) -> int:
    """So many steps."""
    number = 0
    for _ in range(steps):
        number = await note(number)
    return number


async def main(place: str, sizes: list[int], marks: list[int]) -> None:
    """Measure."""
    settings = _sqlite.launch(DBOS, place)

    async def big(size: int) -> int:
        return await (await DBOS.start_workflow_async(carry, size)).get_result()

    async def long(steps: int) -> int:
        return await (await DBOS.start_workflow_async(in_a_row, steps)).get_result()

    await big(1)
    wait_for_the_word()
    found = await growing(big, long, begun, sizes, marks)
    os.write(1, f"{json.dumps({**found, 'settings': settings})}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))
    os._exit(0)
