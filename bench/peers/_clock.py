"""The ten-step race, the same for all: only the standard library, since each contestant's own Python
runs it.

    python -m bench.peers.X PLACE AT_ONCE BATCHES ALONE

A contestant makes itself ready, says so, waits for the word, and runs BATCHES times AT_ONCE workflows
at once, then ALONE of them one after the other. Some run before the clock starts, and the garbage
collector is kept from what is there by then. It prints one JSON object: seconds and latencies of
both, and how durable it is.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

STEPS = 10
WARM = 20
TAKES = 0.02
"""Seconds of a step that is killed half way, see bench/recovery.py."""

Workflow = Callable[[], Awaitable[int]]
"""Starts one workflow with 1, and waits for its result: 11."""


async def race(workflow: Workflow, settings: str) -> None:
    """Run so many workflows, and tell."""
    at_once, batches, alone = map(int, sys.argv[2:5])
    await _timed(workflow)
    await asyncio.gather(*(_timed(workflow) for _ in range(min(at_once, WARM))))
    await asyncio.get_running_loop().run_in_executor(None, wait_for_the_word)
    together: list[float] = []
    begun = time.perf_counter()
    for _ in range(batches):
        together += await asyncio.gather(*(_timed(workflow) for _ in range(at_once)))
    between = time.perf_counter()
    one_by_one = [await _timed(workflow) for _ in range(alone)]
    ended = time.perf_counter()
    found = {
        "together": {"seconds": between - begun, "latencies": together},
        "alone": {"seconds": ended - between, "latencies": one_by_one},
        "settings": settings,
    }
    os.write(1, f"{json.dumps(found)}\n".encode())


@contextmanager
def made_ready() -> Iterator[None]:
    """What was made before is not for the garbage collector to walk over while the clock runs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def wait_for_the_word() -> None:
    """Say that all is ready, and wait until all others are. From here on the clock runs: what is there
    by now is kept from the garbage collector until the process ends."""
    gc.collect()
    gc.freeze()
    os.write(1, b"ready\n")
    sys.stdin.readline()


async def _timed(workflow: Workflow) -> float:
    begun = time.perf_counter()
    if await workflow() != 1 + STEPS:
        raise AssertionError("a wrong result")
    return time.perf_counter() - begun
