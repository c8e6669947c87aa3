"""The same work in DBOS. Run by DBOS's own Python, not by ours (bench/_rival.py):

    python _dbos.py FILE MODE together|alone COUNT

`together` starts COUNT ten-step workflows at once and waits for all of them, `alone` does one after
the other. Written as DBOS's documentation has it: async steps and workflows, its default settings,
started with `start_workflow_async`. MODE is `default`, which leaves the file as DBOS makes it, or
`wal`, which puts it into WAL mode beforehand: DBOS keeps to that, and is faster for it. FILE may also
be the URL of a database in PostgreSQL. One workflow
runs before the clock starts, and the garbage collector is kept from what is there by then, as it is
on our side. Prints one JSON object.
"""

from __future__ import annotations

import sys

try:  # DBOS needs SQLite 3.42, and many a Python has an older one
    import pysqlite3  # type: ignore[import-not-found, unused-ignore]

    sys.modules["sqlite3"] = pysqlite3
except ImportError:
    pass

import asyncio
import gc
import json
import os
import sqlite3
import time

from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]

STEPS = 10


@DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
async def ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def timed() -> float:
    """The seconds that one workflow takes from its start to its result."""
    begun = time.perf_counter()
    handle = await DBOS.start_workflow_async(ten_steps, 1)
    if await handle.get_result() != 1 + STEPS:
        raise AssertionError("a wrong result")
    return time.perf_counter() - begun


async def main(file: str, mode: str, how: str, count: int) -> None:
    """Measure, and print what was found."""
    on_postgres = file.startswith("postgresql:")
    connection = sqlite3.connect(":memory:" if on_postgres else file)
    if mode == "wal":
        connection.execute("PRAGMA journal_mode = wal").fetchall()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": file if on_postgres else f"sqlite:///{file}",
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    await timed()
    gc.collect()
    gc.freeze()
    begun = time.perf_counter()
    if how == "together":
        latencies = await asyncio.gather(*(timed() for _ in range(count)))
    else:
        latencies = [await timed() for _ in range(count)]
    seconds = time.perf_counter() - begun
    [[journal]] = connection.execute("PRAGMA journal_mode").fetchall()
    # Not stored in the file: what a connection has that was told nothing, as DBOS's are.
    [[synchronous]] = connection.execute("PRAGMA synchronous").fetchall()
    found = {
        "seconds": seconds,
        "latencies": latencies,
        "settings": "PostgreSQL"
        if on_postgres
        else f"SQLite {sqlite3.sqlite_version}, journal {journal}, synchronous="
        f"{['OFF', 'NORMAL', 'FULL', 'EXTRA'][synchronous]}",
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
    os._exit(0)  # DBOS's threads would take their time
