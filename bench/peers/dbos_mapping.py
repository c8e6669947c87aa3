"""The same fan-out in DBOS: as *steps* side by side in one workflow, which is what a map of ours is, or
as its documentation has it first, a workflow that puts one for each item into a queue and waits for all
of these *workflows*.

    python -m bench.peers.dbos_mapping PLACE ITEMS AT_ONCE steps|workflows
"""

# mypy: ignore-errors
# ruff: noqa: I001 - the newer SQLite has to be there before DBOS looks for one
from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time

from bench.peers import _sqlite
from bench.peers._clock import wait_for_the_word

from dbos import DBOS


POLL = 0.1
"""Seconds between two looks into the queue, ten times as often as by default."""


@DBOS.step()
async def double(number: int) -> int:
    """Do next to nothing."""
    return number * 2


@DBOS.workflow()
async def side_by_side(items: int, at_once: int) -> int:
    """A step for each item."""
    total = 0
    for first in range(0, items, at_once):
        together = range(first, min(first + at_once, items))
        total += sum(await asyncio.gather(*(double(number) for number in together)))
    return total


@DBOS.workflow()
async def doubled(number: int) -> int:
    """Do next to nothing."""
    return number * 2


@DBOS.workflow()
async def queued(items: int, _at_once: int) -> int:
    """A workflow for each item."""
    queue = await DBOS.retrieve_queue_async("bench")
    handles = [await queue.enqueue_async(doubled, number) for number in range(items)]
    return sum([await handle.get_result() for handle in handles])


async def main(place: str, items: int, at_once: int, how: str) -> None:
    """Measure."""
    settings = _sqlite.launch(DBOS, place)
    fan_out, runs = (side_by_side, 1) if how == "steps" else (queued, items + 1)
    await DBOS.register_queue_async("bench", polling_interval_sec=POLL)
    await (await DBOS.start_workflow_async(fan_out, 10, at_once)).get_result()
    wait_for_the_word()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun = time.perf_counter()
    found = await (await DBOS.start_workflow_async(fan_out, items, at_once)).get_result()
    seconds = time.perf_counter() - begun
    if found != items * (items - 1):
        raise AssertionError("a wrong result")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told = {"seconds": seconds, "before": before, "most": most, "runs": runs}
    os.write(1, f"{json.dumps({**told, 'settings': settings})}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
    os._exit(0)
