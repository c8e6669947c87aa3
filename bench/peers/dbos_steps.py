"""Ten steps in DBOS, see bench/peers/_clock.py. Written as its documentation has it: async steps and
workflows, started with `start_workflow_async`, default settings. PLACE is the URL of a database in
PostgreSQL, or a file; one whose name ends in `.wal` is put into WAL mode beforehand, which DBOS keeps
to, and is faster for. With a fifth argument `threads` workflows and steps are plain functions, called
in eight threads, which is faster on PostgreSQL."""

# mypy: ignore-errors
# ruff: noqa: I001 - the newer SQLite has to be there before DBOS looks for one
from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from bench.peers import _sqlite
from bench.peers._clock import STEPS, race

from dbos import DBOS

THREADS = 8


@DBOS.step()
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@DBOS.workflow()
async def ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = await increase(number)
    return number


@DBOS.step()
def plainly_increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@DBOS.workflow()
def plainly_ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = plainly_increase(number)
    return number


async def once() -> int:
    """One workflow."""
    handle = await DBOS.start_workflow_async(ten_steps, 1)
    return await handle.get_result()


pool = ThreadPoolExecutor(THREADS)


async def once_in_a_thread() -> int:
    """One workflow, in a thread of a few."""
    return await asyncio.get_running_loop().run_in_executor(pool, plainly_ten_steps, 1)


async def main(place: str) -> None:
    """Race."""
    on_postgres = place.startswith("postgresql:")
    if place.endswith(".wal"):
        connection = _sqlite.sqlite3.connect(place)
        connection.execute("PRAGMA journal_mode = wal").fetchall()
    url = place if on_postgres else f"sqlite:///{place}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    DBOS.launch()
    workflow = once_in_a_thread if sys.argv[5:] == ["threads"] else once
    await race(workflow, "PostgreSQL, as it comes" if on_postgres else _sqlite.settings(place))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)  # DBOS's threads would take their time
