"""One workflow of one step, from nothing: `python -m bench._first_step PLACE`. What takes time is the
start of Python, the import, making the file, and the step."""

from __future__ import annotations

import asyncio
import sys

import outlast


@outlast.step
async def greet(name: str) -> str:
    """Do next to nothing."""
    return f"Hello, {name}"


@outlast.workflow
async def hello(name: str) -> str:
    """One step."""
    return await greet(name)


async def main(place: str) -> None:
    """Run it."""
    async with outlast.App(place, workflows=[hello]) as app:
        if await (await app.start(hello("Ada"))).result() != "Hello, Ada":
            raise AssertionError("a wrong result")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
