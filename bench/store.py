"""The SQLite store, measured: appends, histories, streams, tasks.

Everything stands next to something bare in the same run: appends next to loops of plain sqlite3
(bench/_bare.py), histories next to msgspec decoding the same events. Rounds alternate between the
contestants, so that a slow moment of the machine hits all; a ratio is taken within each round, and
the median over the rounds is shown with its range. Values are made ready before the clock starts, on
both sides.

    ./dev bench store [--rounds 7] [--only append] [--stream 1000000] [--json FILE]

A *caller* awaits `Journal(store).commit(commit)` again and again, on a run of its own that it holds
a claim on; several callers share a journal, as the runs of a worker do.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import tempfile
import time
import tracemalloc
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from bench._appends import an_event, measure_appends, script
from bench._bare import BareLoop
from bench._machine import load, resident
from bench._table import Line, as_json, in_words
from outlast.model import Commit, Run, Task
from outlast.model.times import EPOCH
from outlast.stores.sqlite import SqliteStore

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
PARTS = ("append", "history", "stream", "queue")


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked. An aim that is missed is told, not an error."""
    parser = argparse.ArgumentParser(prog="./dev bench store")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--stream", type=int, default=1_000_000, help="events to stream")
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        lines = asyncio.run(_measure(Path(folder), options))
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(folder: Path, options: argparse.Namespace) -> list[Line]:
    lines: list[Line] = []
    for part in options.only or PARTS:
        async with SqliteStore(folder / f"{part}.db") as store:
            if part == "append":
                async with SqliteStore(folder / "bare.db"):  # makes the tables
                    bare = BareLoop(str(folder / "bare.db"))
                found = await measure_appends(store, bare, options.rounds)
                bare.close()
            elif part == "history":
                found = await _histories(store, options.rounds)
            elif part == "stream":
                found = await _stream(store, options.stream)
            else:
                found = await _tasks(store, options.rounds)
        for line in found:
            print(in_words(line), flush=True)
        lines += found
    return lines


# -- histories ------------------------------------------------------------------------------------


class _Plain(Struct, kw_only=True, omit_defaults=True):
    """An event as msgspec decodes it at its best: typed, payloads left raw."""

    type: str
    run_id: str
    id: str
    sequence: int = 0
    version: int = 1
    step_name: str = ""
    data: Raw = Raw(b"{}")
    output: Raw = Raw(b"")
    timestamp: object = EPOCH
    metadata: dict[str, str] = {}
    token: int = 0


async def _histories(store: SqliteStore, rounds: int) -> list[Line]:
    """Whole histories read through the port, next to msgspec decoding them from one JSON array."""
    lines = []
    for length, runs in ((20, 500), (1_000, 40)):
        ids = []
        for _ in range(runs):
            [commit] = await script(store, 1, length)
            await store.commit([commit])
            ids.append(commit.run_id)
        texts = [msgspec.json.encode(await store.history(id)) for id in ids]
        decode = msgspec.json.Decoder(list[_Plain]).decode
        ours, alone = [], []
        for _ in range(rounds):
            gc.collect()
            begun = time.perf_counter()
            for id in ids:
                await store.history(id)
            ours.append(length * runs / (time.perf_counter() - begun))
            gc.collect()
            begun = time.perf_counter()
            for text in texts:
                decode(text)
            alone.append(length * runs / (time.perf_counter() - begun))
        lines.append(
            Line(
                f"history, {length} events", "events/s", ours, alone, "msgspec alone:", 0.5, 250_000
            )
        )
    return lines


# -- streams --------------------------------------------------------------------------------------


async def _stream(store: SqliteStore, events: int) -> list[Line]:
    """One very long history, event by event: how fast, and what it costs in memory."""
    run_id, size = "long", 5_000
    await store.commit([Commit(run_id=run_id, create=Run(id=run_id))])
    for start in range(0, events, size):
        chunk = tuple(an_event(run_id, n) for n in range(min(size, events - start)))
        await store.commit([Commit(run_id=run_id, expected=start, events=chunk)])
        del chunk
    gc.collect()
    begun = time.perf_counter()
    memory = [
        resident()
        async for event in store.stream(run_id)
        if event.sequence % max(events // 100, 1) == 0
    ]
    seconds = time.perf_counter() - begun
    early = max(memory[: len(memory) // 10] or [0])
    tracemalloc.start()
    async for _ in store.stream(run_id, after=events - events // 20):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return [
        Line(f"stream, {events} events", "events/s", [events / seconds]),
        Line("stream, growth after the first tenth", "MiB", [(max(memory) - early) / 2**20]),
        Line("stream, most memory in use by Python", "MiB", [peak / 2**20]),
    ]


# -- tasks ----------------------------------------------------------------------------------------


async def _tasks(store: SqliteStore, rounds: int) -> list[Line]:
    """A task's whole way: enqueued, taken, done; one after the other, a transaction for each."""
    queue = store.queue()
    speeds = []
    for _ in range(rounds):
        tasks = [Task(input=Raw(b'{"order": 7}')) for _ in range(200)]
        begun = time.perf_counter()
        for task in tasks:
            await queue.enqueue("bench", [task])
            delivery = await queue.take("bench", owner="bench", visibility=30.0)
            assert delivery is not None
            await queue.ack(delivery.claim)
        speeds.append(len(tasks) / (time.perf_counter() - begun))
    return [Line("queue, enqueue + take + ack", "tasks/s", speeds)]
