"""The Redis store and queue, measured on a server of their own with `appendfsync always`.

Appends stand next to a bare script in a pipeline, ten-step workflows next to DBOS on its SQLite
default, tiny jobs next to Celery, Dramatiq and huey on the same server. Rounds alternate between the
contestants; a ratio is taken within each round, and the median is shown with its range.

    ./dev bench redis [--rounds 3] [--only append] [--jobs 10000] [--no-dbos] [--json FILE]

What is not ours is installed from PyPI into environments of its own under .cache/ (bench/_rival.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from redis.asyncio import Redis

import outlast
from bench._appends import some_events
from bench._machine import load
from bench._redis_appends import measure_appends
from bench._redis_jobs import measure_jobs
from bench._rival import Rival, Round
from bench._table import Line, as_json, in_words, made_ready
from bench._ten import AT_ONCE, BATCHES, STEPS, ten_steps
from outlast.model import Commit, Run
from outlast.stores.redis import RedisStore
from tools.serving.redis import start_own

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
PARTS = ("append", "steps", "jobs", "memory")
FASTER = 50.0


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked. An aim that is missed is told, not an error."""
    parser = argparse.ArgumentParser(prog="./dev bench redis")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--no-dbos", action="store_true")
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        url, server = start_own(folder)
        try:
            for part in options.only or PARTS:
                found = asyncio.run(_measure(part, url, folder, options))
                for line in found:
                    print(in_words(line), flush=True)
                lines += found
        finally:
            server.stop()
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(part: str, url: str, folder: Path, options: argparse.Namespace) -> list[Line]:
    match part:
        case "append":
            return await measure_appends(url, options.rounds)
        case "steps":
            rival = None if options.no_dbos else Rival(folder)
            return await _steps(url, options.rounds, rival)
        case "jobs":
            return await measure_jobs(url, options.rounds, options.jobs)
        case _:
            return await _memory(url)


async def _steps(url: str, rounds: int, rival: Rival | None) -> list[Line]:
    """Steps a second of ten-step workflows, a hundred at once."""
    ours: list[Round] = []
    theirs: list[Round] = []
    for number in range(rounds):
        ours.append(await _round(RedisStore(url, prefix=f"bench:steps:{number}")))
        if rival is not None:
            theirs.append(await asyncio.to_thread(rival.measure, "default", "together", AT_ONCE))
    return [
        Line(
            f"{AT_ONCE} ten-step workflows at once, against DBOS as it comes",
            "steps/s",
            [_speed(one) for one in ours],
            [_speed(one) for one in theirs] or None,
            "theirs",
            FASTER if theirs else None,
            note=ours[0].settings + (f"; theirs: {theirs[0].settings}" if theirs else ""),
        )
    ]


async def _round(store: RedisStore) -> Round:
    async with store, outlast.App(store, workflows=[ten_steps]) as app:

        async def timed() -> float:
            begun = time.perf_counter()
            run = await app.start(ten_steps, 1)
            if await run.result() != 1 + STEPS:
                raise AssertionError("a wrong result")
            return time.perf_counter() - begun

        await timed()
        latencies: list[float] = []
        with made_ready():
            begun = time.perf_counter()
            for _ in range(BATCHES):
                latencies += await asyncio.gather(*(timed() for _ in range(AT_ONCE)))
            seconds = time.perf_counter() - begun
        known = store.describe()
        return Round(seconds, latencies, f"Redis {known['version']}, fsync {known['fsync']}")


def _speed(round: Round) -> float:
    return len(round.latencies) * STEPS / round.seconds


async def _memory(url: str) -> list[Line]:
    """Bytes of Redis's memory for an event, and for a run that waits."""
    events, runs = 20_000, 2_000
    async with RedisStore(url, prefix="bench:memory") as store, Redis.from_url(url) as client:

        async def used() -> int:
            return int((await client.info("memory"))["used_memory_dataset"])

        before = await used()
        for number in range(runs):
            run = Run(id=f"idle-{number}", workflow="bench")
            await store.commit([Commit(run_id=run.id, create=run)])
        idle = await used()
        for number in range(events // 100):
            (batch,) = some_events(f"idle-{number}", 1, 100)
            await store.commit([Commit(run_id=f"idle-{number}", events=tuple(batch))])
        after = await used()
    return [
        Line("memory of an idle run", "bytes", [(idle - before) / runs]),
        Line("memory of an event, payload of 87 bytes", "bytes", [(after - idle) / events]),
    ]
