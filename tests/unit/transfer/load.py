"""Runs, workers and a client under which stores are changed: what each process of the campaign does.

python -m tests.unit.transfer.load worker PLACE LEDGER
python -m tests.unit.transfer.load mover SOURCE TARGET
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import outlast
from outlast.transfer import move
from tests.unit.transfer.places import store_at

LEDGER = ""


def note(body: str, number: int) -> None:
    """What a body does in the world: one line, whole, in a file outside every store."""
    info = outlast.step_info()
    line = f"{info.run_id}\t{info.key}\t{info.attempt}\t{body}\t{number}\t{time.time()!r}\n"
    handle = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, line.encode())
    os.close(handle)


@outlast.step
async def near(number: int) -> int:
    note("near", number)
    await asyncio.sleep(0.08)
    return number


@outlast.step(queue="far")
async def far(number: int) -> int:
    note("far", number)
    return number * 2


@outlast.workflow
async def leaf(number: int) -> int:
    await outlast.sleep(0.02)
    return await near(number)


@outlast.workflow
async def tour(stops: int) -> list[list[int]]:
    """Signals in their order, steps here and elsewhere, a timer, and children."""
    heard, done = [], []
    for stop in range(stops):
        heard.append(await outlast.wait_for_signal("go", type=int))
        done.append(await near(stop))
        if stop % 3 == 1:
            done.append(await far(stop))
        if stop % 3 == 2:
            done.append(await leaf(stop))
    return [heard, done]


WORKFLOWS: list[outlast.Workflow[..., Any]] = [tour, leaf]


def expected(stops: int) -> list[list[int]]:
    """What a tour gives."""
    done = []
    for stop in range(stops):
        done.append(stop)
        if stop % 3 == 1:
            done.append(stop * 2)
        if stop % 3 == 2:
            done.append(stop)
    return [list(range(stops)), done]


async def work(place: str) -> None:
    """RunDriver runs and do tasks until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with (
        store_at(place) as store,
        outlast.App(store, workflows=WORKFLOWS, steps=[far], lease=3.0, name="load"),
    ):
        print("ready", flush=True)
        await ended.wait()


async def carry(source: str, target: str) -> None:
    """Move everything, and say how much."""
    async with store_at(source) as old, store_at(target) as new:
        print("ready", flush=True)
        moves = await move(old, new, address=target)
    assert not moves.refused, moves.refused
    print(f"moved {moves.runs}", flush=True)


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "worker":
        LEDGER = str(Path(rest[1]))
        asyncio.run(work(rest[0]))
    else:
        asyncio.run(carry(rest[0], rest[1]))
