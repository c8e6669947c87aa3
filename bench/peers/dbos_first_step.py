"""One workflow of one step in DBOS, from nothing: `python -m bench.peers.dbos_first_step FILE`."""

# mypy: ignore-errors
# ruff: noqa: I001 - the newer SQLite has to be there before DBOS looks for one
from __future__ import annotations

import asyncio
import os
import sys

from bench.peers import _sqlite

from dbos import DBOS


@DBOS.step()
async def greet(name: str) -> str:
    """Do next to nothing."""
    return f"Hello, {name}"


@DBOS.workflow()
async def hello(name: str) -> str:
    """One step."""
    return await greet(name)


async def main(file: str) -> None:
    """Run it."""
    _sqlite.launch(DBOS, file)
    handle = await DBOS.start_workflow_async(hello, "Ada")
    if await handle.get_result() != "Hello, Ada":
        raise AssertionError("a wrong result")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
