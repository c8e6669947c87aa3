"""Workflows that are killed half way, in DBOS, see bench/recovery.py:

    python -m bench.peers.dbos_recovering begin|resume PLACE LEDGER COUNT LEASE

Written as DBOS's documentation has it: whoever launches with the same executor id takes up what was
left unfinished, at once.
"""

# mypy: ignore-errors
# ruff: noqa: I001 - the newer SQLite has to be there before DBOS looks for one
from __future__ import annotations

import asyncio
import os
import sys

from bench.peers import _sqlite
from bench.peers._clock import STEPS, TAKES

from dbos import DBOS, SetWorkflowID

ledger = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@DBOS.step()
async def increase(number: int) -> int:
    """Say that it has begun, and take a while."""
    os.write(ledger, f"{DBOS.workflow_id} {number}\n".encode())
    await asyncio.sleep(TAKES)
    return number + 1


@DBOS.workflow()
async def ten_steps() -> int:
    """Ten steps in a row."""
    number = 0
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def main(how: str, place: str, count: int) -> None:
    """Begin, or see that all come to their end."""
    _sqlite.launch(DBOS, place)
    ids = [f"wf-{number}" for number in range(count)]

    async def begin(id: str) -> None:
        with SetWorkflowID(id):
            await DBOS.start_workflow_async(ten_steps)

    if how == "begin":
        await asyncio.gather(*(begin(id) for id in ids))
    handles = [await DBOS.retrieve_workflow_async(id) for id in ids]
    for handle in handles:
        if await handle.get_result(polling_interval_sec=0.1) != STEPS:
            raise AssertionError("a wrong result")
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[4])))
