"""Ten steps in outlast, see bench/peers/_clock.py: `python -m bench._our_steps PLACE AT_ONCE BATCHES
ALONE`."""

from __future__ import annotations

import asyncio
import sys

import outlast
from bench._stores import settings_of, store_at
from bench.peers._clock import STEPS, race


@outlast.step
async def increase(number: int) -> int:
    """Do next to nothing."""
    return number + 1


@outlast.workflow
async def ten_steps(number: int) -> int:
    """Ten steps in a row."""
    for _ in range(STEPS):
        number = await increase(number)
    return number


async def main(place: str) -> None:
    """Race."""
    async with store_at(place) as store, outlast.App(store, workflows=[ten_steps]) as app:

        async def once() -> int:
            return await (await app.start(ten_steps(1))).result()

        await race(once, settings_of(store))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
