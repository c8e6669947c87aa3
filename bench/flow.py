"""Queues with rules, next to the same queue without any: what taking in turn costs.

The same tasks are taken and acked in batches, on the same store, alternately: with no rules; with a
limit for the queue; with 1,000 keys that take turns; with 1,000 keys that have limits as well. What
is measured is taking alone. All of them hand out the same number of tasks.

    ./dev bench flow [--rounds 5] [--tasks 5000] [--batch 50] [--only sqlite] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench._machine import load
from bench._table import Line, as_json, in_words, made_ready
from outlast.model.flow import Flow, Rate
from outlast.model.ids import new_id
from outlast.model.task import Task
from outlast.ports.queue import Queue

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
STORES = ("sqlite", "postgres", "redis")
SERVERS = ("postgres", "redis")
KEYS = 1000
AIM = 2.0
"""Times the plain take's cost, at most."""


def _keyed(number: int) -> str:
    return f"tenant-{number % KEYS}"


CASES: dict[str, tuple[Flow | None, Callable[[int], str]]] = {
    "no rules": (None, lambda number: ""),
    "a limit for the queue": (Flow(queue="flow", concurrency=500), lambda number: ""),
    "1,000 keys in turn": (Flow(queue="flow"), _keyed),
    "1,000 keys with limits": (
        Flow(queue="flow", concurrency=500, key_concurrency=5, weights={"tenant-1": 3.0}),
        _keyed,
    ),
    "1,000 keys with limits and rates": (
        Flow(queue="flow", concurrency=500, key_concurrency=5, key_rate=Rate(1000, 60.0)),
        _keyed,
    ),
}


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench flow")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--only", choices=STORES, action="append", help="leave the rest out")
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    lines: list[Line] = []
    for name in options.only or STORES:
        for line in asyncio.run(_measure(name, options)):
            print(in_words(line), flush=True)
            lines.append(line)
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(name: str, options: argparse.Namespace) -> list[Line]:
    found: dict[str, list[float]] = {case: [] for case in CASES}
    for _ in range(options.rounds):
        for case, (flow, key) in CASES.items():
            async with _queue(name) as queue:
                found[case].append(await _cost(queue, flow, key, options.tasks, options.batch))
    plain = found.pop("no rules")
    lines = [Line(f"{name}: take with no rules", "µs a task", plain)]
    for case, costs in found.items():
        lines.append(
            Line(
                f"{name}: take with {case}",
                "µs a task",
                costs,
                against=plain,
                what="no rules",
                aim=AIM,
                at_most=True,
            )
        )
    return lines


async def _cost(
    queue: Queue, flow: Flow | None, key: Callable[[int], str], tasks: int, batch: int
) -> float:
    if flow is not None:
        await queue.set_flow(flow, by="bench")
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
                raise SystemExit(f"only {taken} of {tasks} tasks were handed out")
            taken += len(got)
            for one in got:
                await queue.ack(one.claim)
    return spent / taken * 1e6


@asynccontextmanager
async def _queue(name: str) -> AsyncIterator[Queue]:
    """An empty queue."""
    queue: Queue
    if name == "sqlite":
        from outlast.stores.sqlite import SqliteQueue

        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            queue = SqliteQueue(Path(folder) / "queue.db")
            async with queue:
                yield queue
    elif name == "postgres":
        from outlast.stores.postgres import PostgresQueue

        schema = f"bench_{new_id().replace('-', '')}"
        queue = PostgresQueue(os.environ["OUTLAST_TEST_POSTGRES"], schema=schema)
        async with queue:
            yield queue
    else:
        from outlast.stores.redis import RedisQueue

        queue = RedisQueue(os.environ["OUTLAST_TEST_REDIS"], prefix=f"bench-{new_id()}")
        async with queue:
            yield queue
