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
import os
import resource
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from bench._bare import BareLoop
from outlast.engine.journal import Journal
from outlast.model import Commit, Event, Hold, Run, Task, new_id
from outlast.model.times import EPOCH
from outlast.stores.sqlite import SqliteStore

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
CALLERS = (1, 16, 128)
APPENDS = {  # how many, by events in each and callers: enough for some tenths of a second
    1: {1: 400, 16: 1_600, 128: 6_400},
    10: {1: 300, 16: 800, 128: 2_560},
    100: {1: 100, 16: 320, 128: 640},
}
PARTS = ("append", "history", "stream", "queue")


class Line(NamedTuple):
    """One line of the table. `aim` is what the ratio must reach, None if nothing was asked."""

    name: str
    unit: str
    values: list[float]
    against: list[float] | None = None
    what: str = ""
    aim: float | None = None

    @property
    def ratios(self) -> list[float]:
        """Ours in terms of theirs, round by round."""
        return [
            ours / theirs for ours, theirs in zip(self.values, self.against or [], strict=False)
        ]


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked. An aim that is missed is told, not an error."""
    parser = argparse.ArgumentParser(prog="./dev bench store")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--stream", type=int, default=1_000_000, help="events to stream")
    options = parser.parse_args(argv)
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        lines = asyncio.run(_measure(Path(folder), options))
    if options.json:
        results = {line.name: _as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(folder: Path, options: argparse.Namespace) -> list[Line]:
    lines: list[Line] = []
    for part in options.only or PARTS:
        async with SqliteStore(folder / f"{part}.db") as store:
            if part == "append":
                async with SqliteStore(folder / "bare.db"):  # makes the tables
                    bare = BareLoop(str(folder / "bare.db"))
                found = await _appends(store, bare, options.rounds)
                bare.close()
            elif part == "history":
                found = await _histories(store, options.rounds)
            elif part == "stream":
                found = await _stream(store, options.stream)
            else:
                found = await _tasks(store, options.rounds)
        for line in found:
            print(_in_words(line), flush=True)
        lines += found
    return lines


# -- appends --------------------------------------------------------------------------------------


async def _appends(store: SqliteStore, bare: BareLoop, rounds: int) -> list[Line]:
    """Events per second, ours by number of callers, bare by appends per transaction."""
    lines = []
    for size, counts in APPENDS.items():
        speeds: dict[str, list[float]] = {}
        for _ in range(rounds):
            for callers in CALLERS:
                seconds, events = await _append(store, callers, counts[callers], size)
                speeds.setdefault(f"{callers}", []).append(events / seconds)
                for fenced in (False, True):
                    if callers == 16:
                        continue
                    per = 1 if callers == 1 else 100
                    appends = bare.prepare(_events("bare", counts[callers], size))
                    gc.collect()
                    seconds = bare.run(appends, per_transaction=per, fenced=fenced)
                    name = f"bare {per} {fenced}"
                    speeds.setdefault(name, []).append(size * len(appends) / seconds)
        for callers in CALLERS:
            per = 1 if callers == 1 else 100
            aim = {1: 1 / 1.5, 128: 0.6}.get(callers)
            for fenced, what in ((False, "events alone"), (True, "events and fence")):
                lines.append(
                    Line(
                        f"append, {callers} callers, {size} events a commit, against {what}",
                        "events/s",
                        speeds[f"{callers}"],
                        speeds[f"bare {per} {fenced}"],
                        f"bare loop, {what}, {per} appends a transaction",
                        aim,
                    )
                )
    return lines


async def _append(store: SqliteStore, callers: int, appends: int, size: int) -> tuple[float, int]:
    """Seconds for so many appends by so many callers, and the number of events."""
    scripts = [await _script(store, appends // callers, size) for _ in range(callers)]
    journal = Journal(store)

    async def call(commits: list[Commit]) -> None:
        for commit in commits:
            await journal.commit(commit)

    gc.collect()
    begun = time.perf_counter()
    await asyncio.gather(*(call(commits) for commits in scripts))
    return time.perf_counter() - begun, sum(map(len, scripts)) * size


async def _script(store: SqliteStore, appends: int, size: int) -> list[Commit]:
    """A new run under a claim, and what its caller is going to commit."""
    run = Run(id=new_id(), workflow="bench")
    begin = Commit(run_id=run.id, create=run, hold=Hold("bench", 3600.0))
    token = (await Journal(store).commit(begin)).token
    return [
        Commit(
            run_id=run.id,
            uid=run.uid,
            expected=number * size,
            token=token,
            events=tuple(events),
        )
        for number, events in enumerate(_events(run.id, appends, size))
    ]


def _events(run_id: str, appends: int, size: int) -> list[list[Event]]:
    return [[_event(run_id, number) for number in range(size)] for _ in range(appends)]


def _event(run_id: str, number: int) -> Event:
    data = b'{"step": "charge-card", "attempt": 1, "number": %d}' % number
    return Event(
        type="step.completed",
        run_id=run_id,
        step_name="charge-card",
        data=Raw(data),
        output=Raw(b'{"receipt": "r-123", "cents": 1999}'),
    )


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
            [commit] = await _script(store, 1, length)
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
            begun = time.perf_counter()
            for text in texts:
                decode(text)
            alone.append(length * runs / (time.perf_counter() - begun))
        lines.append(
            Line(f"history, {length} events", "events/s", ours, alone, "msgspec alone", 0.5)
        )
    return lines


# -- streams --------------------------------------------------------------------------------------


async def _stream(store: SqliteStore, events: int) -> list[Line]:
    """One very long history, event by event: how fast, and what it costs in memory."""
    run_id, size = "long", 5_000
    await store.commit([Commit(run_id=run_id, create=Run(id=run_id))])
    for start in range(0, events, size):
        chunk = tuple(_event(run_id, n) for n in range(min(size, events - start)))
        await store.commit([Commit(run_id=run_id, expected=start, events=chunk)])
        del chunk
    gc.collect()
    begun = time.perf_counter()
    memory = [
        _resident()
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


def _resident() -> int:
    """Bytes of memory that this process has in use now."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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


# -- telling --------------------------------------------------------------------------------------


def _in_words(line: Line) -> str:
    text = f"{line.name:62} {_spread(line.values):>26} {line.unit}"
    if line.against:
        ratio = statistics.median(line.ratios)
        text += f"   {line.what}: {_spread(line.against)}   ratio {ratio:.2f}"
        if line.aim is not None:
            text += f" (aim {line.aim:.2f}: {'reached' if ratio >= line.aim else 'MISSED'})"
    return text


def _spread(values: Sequence[float]) -> str:
    text = f"{statistics.median(values):,.0f}" if max(values) >= 100 else f"{values[0]:.1f}"
    return text if len(values) == 1 else f"{text} ({min(values):,.0f}–{max(values):,.0f})"


def _as_json(line: Line) -> dict[str, object]:
    return {
        "value": statistics.median(line.values),
        "unit": line.unit,
        "against": statistics.median(line.against) if line.against else None,
        "ratio": statistics.median(line.ratios) if line.against else None,
    }
