"""How big results and long runs are measured, the same for all: only the standard library."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise

TIMES = 10
WINDOW = 30
"""Steps whose median counts, from a mark on."""

Begun = list[float]
"""When each step of a run has begun."""

Counted = Callable[[int], Awaitable[int]]


async def growing(
    big: Counted, long: Counted, begun: Begun, sizes: list[int], marks: list[int]
) -> dict[str, list[float]]:
    """Milliseconds of a workflow whose step returns so many bytes, and of a step after so many."""
    by_size = []
    for size in sizes:
        took = []
        for _ in range(TIMES):
            before = time.perf_counter()
            if await big(size) != size:
                raise AssertionError("a wrong result")
            took.append(time.perf_counter() - before)
        by_size.append(statistics.median(took) * 1000)
    begun.clear()
    await long(max(marks) + WINDOW + 1)
    gaps = [after - before for before, after in pairwise(begun)]
    by_mark = [statistics.median(gaps[mark : mark + WINDOW]) * 1000 for mark in marks]
    return {"sizes": by_size, "marks": by_mark}
