"""How things grow: what one more costs when there are many already.

runs       a page of runs, one run by id, and a whole ten-step workflow, in a store with 1,000, 10,000 …
           runs that have ended
history    a step after many others in the same run; and streaming a long history
payload    a step that returns 100 B … 10 MB
backlog    taking and finishing tasks of a queue with 1,000, 10,000 … waiting
peers      a step that returns much and a step late in a run, next to DBOS. Nobody is next to us where a
           store has to be filled first: at DBOS' pace a million runs take hours

Entries are compared with the first, the smallest: a figure that does not grow stays at × 1. Sizes go up
in steps of ten to a bound that keeps this short; `--full` goes to the end.

    ./dev bench growth [--rounds 3] [--only runs] [--most 1000000] [--backlog 100000] [--full]
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import asyncpg
from msgspec import Raw

import outlast
from bench._appends import an_event
from bench._arena import Arena, Size, compete, seconds
from bench._growing import begun as note_times
from bench._growing import carry, in_a_row
from bench._machine import resident
from bench._next_to import next_to
from bench._our_steps import ten_steps
from bench._stores import STORES, settings_of, store_at
from bench._table import Aim, Contest, Entry
from bench.peers._clock import made_ready
from outlast.model import Commit, Run, Status, Task
from outlast.model.query import RunQuery
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore

LEAST = 1_000
BATCH = 500
TIMES = 20
EARLY, WINDOW = 10, 200
TAKEN, TAKES = 50, 3
BIG = 1_000_000
"""Bytes from which on it is their number that costs, rather than the step."""

MIB = 2**20
FLAT = 2.0
"""How many times more is still no growth."""

PACKAGES = ("dbos",)


def main(argv: list[str]) -> int:
    """Measure."""
    parts = {
        "runs": runs,
        "history": history,
        "payload": payload,
        "backlog": backlog,
        "peers": next_to,
    }
    sizes = {
        "runs": Size(100_000, 1_000_000, "runs in PostgreSQL and in Redis"),
        "most": Size(1_000_000, 1_000_000, "runs in SQLite"),
        "steps": Size(10_000, 100_000, "steps of the longest run"),
        "stream": Size(200_000, 1_000_000, "events to stream"),
        "bytes": Size(10_000_000, 10_000_000, "bytes that a step returns"),
        "backlog": Size(100_000, 1_000_000, "tasks that wait"),
    }
    return compete(__name__, argv, parts, rounds=3, sizes=sizes, peers=PACKAGES)


def tens(least: int, most: int) -> list[int]:
    """From the least to the most, ten times as much each time."""
    found = [min(least, most)]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found


# -- runs -----------------------------------------------------------------------------------------


def runs(arena: Arena) -> list[Contest]:
    """Milliseconds, by how many runs there are."""
    contests = []
    for name in STORES:
        contests += asyncio.run(_runs(arena, name, arena.place(name)))
    return contests


async def _runs(arena: Arena, name: str, place: str) -> list[Contest]:
    most = arena.size("most" if name == "SQLite" else "runs")
    found: dict[str, dict[int, list[float]]] = {}
    async with _opened(place) as (store, app, settings):
        there = 0
        for count in tens(LEAST, most):
            arena.say(f"{name}: {count:,} runs")
            await _fill(store, there, count)
            there = count
            await _settle(place)

            async def page() -> None:
                await store.find(RunQuery(limit=50))

            async def one(id: str = f"run-{count // 2}") -> None:
                await store.get(id)

            async def whole() -> None:
                await (await app.start(ten_steps(1))).result()

            for what, act in (("a page of 50", page), ("one by its id", one), ("ten steps", whole)):
                await seconds(act, 5)  # the first is what the others are compared with: not cold
                values = [await seconds(act, TIMES) * 1000 for _ in range(arena.rounds)]
                found.setdefault(what, {})[count] = values
    return [
        _grown(f"among so many runs: {what}, {name}", "ms", by_count, "runs", settings)
        for what, by_count in found.items()
    ]


@asynccontextmanager
async def _opened(place: str) -> AsyncIterator[tuple[Store, outlast.App, str]]:
    async with store_at(place) as store, outlast.App(store, workflows=[ten_steps]) as app:
        await (await app.start(ten_steps(1))).result()
        yield store, app, settings_of(store)


async def _fill(store: Store, begin: int, end: int) -> None:
    """Runs that have ended, numbered from `begin`."""
    for first in range(begin, end, BATCH):
        ids = [f"run-{number}" for number in range(first, min(first + BATCH, end))]
        ended = [Run(id=id, workflow="ended", status=Status.COMPLETED) for id in ids]
        outcomes = await store.commit(
            [Commit(run_id=run.id, create=run, events=(an_event(run.id, 1),)) for run in ended]
        )
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


async def _settle(place: str) -> None:
    """Let what filling has left be written: how a store grows is measured, not how it is filled."""
    if place.startswith("postgresql:"):
        connection = await asyncpg.connect(place)
        await connection.execute("CHECKPOINT")
        await connection.close()
    await asyncio.to_thread(os.sync)


def _grown(
    name: str, unit: str, values: dict[int, list[float]], of: str, settings: str = ""
) -> Contest:
    entries = [
        Entry(f"outlast, {count:,} {of}", found, settings) for count, found in values.items()
    ]
    aims = [Aim(FLAT, entry.who) for entry in entries[1:]]
    return Contest(name, unit, entries, less=True, aims=aims, grows=True)


# -- history --------------------------------------------------------------------------------------


def history(arena: Arena) -> list[Contest]:
    """What a step costs late in a run, in memory, so that no disk is in it; and a long stream."""
    steps = arena.size("steps")
    marks = [EARLY, *(mark for mark in tens(LEAST, steps) if mark > EARLY + WINDOW)]
    took: dict[int, list[float]] = {mark: [] for mark in marks}
    for number in range(arena.rounds):
        arena.say(f"round {number + 1} of {arena.rounds}: a run of {steps:,} steps")
        gaps = asyncio.run(_gaps(max(marks) + WINDOW + 1))
        for mark in marks:
            took[mark].append(statistics.median(gaps[mark : mark + WINDOW]) * 1e6)
    settings = "memory, not durable"
    contest = _grown("a step after so many others, memory", "µs", took, "before it", settings)
    return [contest, *asyncio.run(_stream(arena))]


async def _gaps(steps: int) -> list[float]:
    note_times.clear()
    async with MemoryStore() as store, outlast.App(store, workflows=[in_a_row]) as app:
        with made_ready():
            await (await app.start(in_a_row(steps))).result()
    return [after - before for before, after in pairwise(note_times)]


async def _stream(arena: Arena) -> list[Contest]:
    """One very long history, event by event: how fast, and what it costs in memory."""
    events, size, run_id = arena.size("stream"), 5_000, "long"
    async with SqliteStore(arena.folder / "stream.db") as store:
        await store.commit([Commit(run_id=run_id, create=Run(id=run_id))])
        for start in range(0, events, size):
            chunk = tuple(an_event(run_id, n) for n in range(min(size, events - start)))
            await store.commit([Commit(run_id=run_id, expected=start, events=chunk)])
            del chunk
        with made_ready():
            begun = time.perf_counter()
            memory = [
                resident()
                async for event in store.stream(run_id)
                if event.sequence % max(events // 100, 1) == 0
            ]
            took = time.perf_counter() - begun
        settings = settings_of(store)
    early = max(memory[: len(memory) // 10] or [0])
    name = f"stream of {events:,} events, SQLite"
    growth = Entry("outlast", [(max(memory) - early) / MIB], settings)
    return [
        Contest(name, "events/s", [Entry("outlast", [events / took], settings)]),
        Contest(f"{name}, growth after the first tenth", "MiB", [growth], less=True),
    ]


# -- payload --------------------------------------------------------------------------------------


def payload(arena: Arena) -> list[Contest]:
    """Milliseconds of a workflow with one step that returns so many bytes."""
    contests = []
    for name in STORES:
        arena.say(f"payloads on {name}")
        contests += asyncio.run(_payload(arena, name, arena.place(name)))
    return contests


async def _payload(arena: Arena, name: str, place: str) -> list[Contest]:
    found: dict[int, list[float]] = {}
    async with store_at(place) as store, outlast.App(store, workflows=[carry]) as app:
        settings = settings_of(store)
        for size in tens(100, arena.size("bytes")):

            async def whole(size: int = size) -> None:
                if await (await app.start(carry(size))).result() != size:
                    raise AssertionError("a wrong result")

            await seconds(whole, 5)  # the first is what the others are compared with: not cold
            found[size] = [await seconds(whole, 5) * 1000 for _ in range(arena.rounds)]
    entries = [Entry(f"outlast, {size:,} B", values, settings) for size, values in found.items()]
    by_megabyte = {
        size: [value / size * 1e6 for value in values]
        for size, values in found.items()
        if size >= BIG or size == max(found)
    }
    return [
        Contest(f"a step that returns so much, {name}", "ms", entries, less=True, grows=True),
        _grown(f"a megabyte of what a step returns, {name}", "ms", by_megabyte, "B", settings),
    ]


# -- backlog --------------------------------------------------------------------------------------


def backlog(arena: Arena) -> list[Contest]:
    """Microseconds to take and finish a task, by how many wait."""
    return [asyncio.run(_backlog(arena, name, arena.place(name))) for name in STORES]


async def _backlog(arena: Arena, name: str, place: str) -> Contest:
    found: dict[int, list[float]] = {}
    async with store_at(place) as store:
        queue, made, settings = store.queue(), 0, settings_of(store)
        taken_of_each = (arena.rounds + 1) * TAKES * TAKEN
        taken_before = 0
        for count in tens(LEAST, arena.size("backlog")):
            arena.say(f"{name}: {count:,} tasks wait")
            end = taken_before + count + taken_of_each  # so many wait when the last is taken
            for first in range(made, end, BATCH):
                numbers = range(first, min(first + BATCH, end))
                await queue.enqueue("bench", [Task(id=f"t-{n}", input=Raw(b"7")) for n in numbers])
            made, taken_before = end, taken_before + taken_of_each

            async def take() -> None:
                taken = await queue.take_many(
                    ["bench"], owner="bench", visibility=60.0, limit=TAKEN
                )
                if len(taken) != TAKEN:
                    raise AssertionError("tasks are missing")
                await store.send([], finishes=[one.claim for one in taken])

            await seconds(take, TAKES)
            found[count] = [await seconds(take, TAKES) / TAKEN * 1e6 for _ in range(arena.rounds)]
    return _grown(f"a task when so many wait, {name}", "µs", found, "tasks", settings)
