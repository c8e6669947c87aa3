"""Queues with rules, next to the same queue without any: what taking in turn costs.

The same tasks are taken and acked in batches, on the same store, alternately: with no rules; with a
limit for the queue; with 1,000 keys that take turns; with 1,000 keys that have limits as well. What
is measured is taking alone. All of them hand out the same number of tasks.

    ./dev bench flow [--rounds 3] [--tasks 3000] [--batch 50] [--only sqlite] [--json FILE]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from bench._arena import Arena, Size, compete
from bench._stores import settings_of, store_at
from bench._table import Aim, Contest, Entry
from bench.peers._clock import made_ready
from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.model.run_contents import Task
from outlast.ports import Store

KEYS = 1000
AIM = 2.0
"""Times the plain take's cost, at most."""


def _keyed(number: int) -> str:
    return f"tenant-{number % KEYS}"


CASES: dict[str, tuple[QueuePolicy | None, Callable[[int], str]]] = {
    "no rules": (None, lambda number: ""),
    "a limit for the queue": (QueuePolicy(queue="flow", concurrency=500), lambda number: ""),
    "1,000 keys in turn": (QueuePolicy(queue="flow"), _keyed),
    "1,000 keys with limits": (
        QueuePolicy(queue="flow", concurrency=500, key_concurrency=5, weights={"tenant-1": 3.0}),
        _keyed,
    ),
    "1,000 keys with limits and rates": (
        QueuePolicy(queue="flow", concurrency=500, key_concurrency=5, key_rate=Rate(1000, 60.0)),
        _keyed,
    ),
}


def main(argv: list[str]) -> int:
    """Measure."""
    stores = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
    parts = {part: partial(takes, name=name) for part, name in stores.items()}
    sizes = {
        "tasks": Size(3_000, 5_000, "tasks to take"),
        "batch": Size(50, 50, "tasks that are taken at once"),
    }
    return compete(__name__, argv, parts, rounds=3, sizes=sizes)


def takes(arena: Arena, name: str) -> list[Contest]:
    """Microseconds a task."""
    found, _ = arena.alternate(
        {case: partial(_case, arena, name, case) for case in CASES},
    )
    entries = [
        Entry(f"outlast, {case}", [cost for cost, _ in rounds], rounds[0][1])
        for case, rounds in found.items()
    ]
    aims = [Aim(AIM, entry.who) for entry in entries[1:]]
    return [Contest(f"take a task, {name}", "µs", entries, less=True, aims=aims, grows=True)]


def _case(arena: Arena, name: str, case: str) -> tuple[float, str]:
    async def measure(place: str) -> tuple[float, str]:
        async with store_at(place) as store:
            cost = await _cost(store, case, arena.size("tasks"), arena.size("batch"))
            return cost, settings_of(store)

    return asyncio.run(measure(arena.place(name)))


async def _cost(store: Store, case: str, tasks: int, batch: int) -> float:
    flow, key = CASES[case]
    queue = store.queue()
    if flow is not None:
        await queue.set_policy(flow, by="bench")
    for begin in range(0, tasks, 1000):
        await queue.enqueue(
            "flow/work",
            [Task(id=f"t{n}", key=key(n)) for n in range(begin, min(begin + 1000, tasks))],
        )
    spent, taken = 0.0, 0
    with made_ready():
        while taken < tasks:
            begun = time.perf_counter()
            got = await queue.take_many(["flow/work"], owner="bench", visibility=60, limit=batch)
            spent += time.perf_counter() - begun
            if not got:
                raise AssertionError(f"only {taken} of {tasks} tasks were handed out")
            taken += len(got)
            await store.send([], finishes=[one.claim for one in got])
    return spent / taken * 1e6
