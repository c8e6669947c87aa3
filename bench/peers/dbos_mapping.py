"""The same fan-out in DBOS, as its documentation has it: a workflow that puts one for each item into a
queue and waits for all of them.

    python -m bench.peers.dbos_mapping PLACE ITEMS AT_ONCE
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


@DBOS.workflow()
async def double(number: int) -> int:
    """Do next to nothing."""
    return number * 2


@DBOS.workflow()
async def fan_out(items: int) -> int:
    """A workflow for each item."""
    queue = await DBOS.retrieve_queue_async("bench")
    handles = [await queue.enqueue_async(double, number) for number in range(items)]
    return sum([await handle.get_result() for handle in handles])


async def main(place: str, items: int) -> None:
    """Measure."""
    on_postgres = place.startswith("postgresql:")
    _sqlite.launch(DBOS, place)
    await DBOS.register_queue_async("bench", polling_interval_sec=0.1)
    await (await DBOS.start_workflow_async(fan_out, 3)).get_result()
    wait_for_the_word()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun = time.perf_counter()
    found = await (await DBOS.start_workflow_async(fan_out, items)).get_result()
    seconds = time.perf_counter() - begun
    if found != items * (items - 1):
        raise AssertionError("a wrong result")
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    settings = "PostgreSQL, as it comes" if on_postgres else _sqlite.settings(place)
    told = {"seconds": seconds, "before": before, "most": most, "runs": items + 1}
    os.write(1, f"{json.dumps({**told, 'settings': settings})}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
    os._exit(0)
