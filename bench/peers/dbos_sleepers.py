"""Workflows of DBOS that sleep, see bench/_sleepers.py: written as its documentation has it.

    python -m bench.peers.dbos_sleepers PLACE COUNT IDLE

Each stays in memory while it sleeps. Statements of SQLite are not counted here.
"""

# mypy: ignore-errors
# ruff: noqa: ASYNC110, I001 - DBOS has no event for it; and the newer SQLite has to be there before it
from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path

from bench.peers import _sqlite
from bench.peers._clock import wait_for_the_word

from dbos import DBOS

AT_ONCE = 50
FIRST = 50
SPARE = 4.0
SETTLE = 11.0  # see bench/_sleepers.py
begun = set()
ended = 0


@DBOS.step()
async def prepare(number: int) -> int:
    """Do next to nothing."""
    return number


@DBOS.workflow()
async def sleeper(moment: float) -> None:
    """A step, and a long sleep."""
    global ended
    await prepare(1)
    begun.add(DBOS.workflow_id)
    await DBOS.sleep_async(max(moment - time.time(), 0.0))
    ended += 1


async def start(count: int, moment: float) -> list:
    """Start workflows, a few at a time, and wait until all of them are about to sleep."""
    handles, there = [], len(begun)
    for first in range(0, count, AT_ONCE):
        together = range(first, min(first + AT_ONCE, count))
        handles += await asyncio.gather(
            *(DBOS.start_workflow_async(sleeper, moment) for _ in together)
        )
    while len(begun) < there + count:
        await asyncio.sleep(0.01)
    return handles


def resident() -> int:
    """Bytes of memory that this process has in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def transactions(place: str) -> int:
    """How many the database has seen."""
    if not place.startswith("postgresql:"):
        return 0
    import psycopg

    name = place.rpartition("/")[2]
    sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
    with psycopg.connect(place.rpartition("/")[0] + "/postgres") as connection:
        return connection.execute(sql, [name]).fetchone()[0]


async def main(place: str, count: int, idle: int) -> None:
    """Measure."""
    settings = _sqlite.launch(DBOS, place)
    wait_for_the_word()
    before = time.perf_counter()
    await start(FIRST, time.time() + 30 * 86400)
    each = (time.perf_counter() - before) / FIRST
    settle = SETTLE if place.startswith("postgresql:") else 0.0
    moment = time.time() + SPARE * each * count + settle + idle + SPARE
    gc.collect()
    memory, before = resident(), time.perf_counter()
    handles = await start(count, moment)
    slept = time.perf_counter() - before
    gc.collect()
    memory = resident() - memory
    await asyncio.sleep(settle)
    asked = transactions(place)
    await asyncio.sleep(idle)
    queries = (transactions(place) - asked) / idle
    if time.time() > moment:
        raise AssertionError("the first woke before the last slept")
    await asyncio.sleep(max(moment - time.time(), 0))
    before = time.perf_counter()
    for handle in handles:
        await handle.get_result()
    woke = time.perf_counter() - before
    if ended != count:
        raise AssertionError("not all have woken")
    found = {"memory": memory, "slept": slept, "queries": queries, "woke": woke, "count": count}
    os.write(1, f"{json.dumps({**found, 'settings': settings})}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    os._exit(0)
