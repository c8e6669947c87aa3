"""Tiny jobs through one worker process, on each backend next to those who have made it their own.

redis      Celery and Dramatiq, on one server with `appendfsync always`
sqlite     huey, on a file each
postgres   procrastinate, on one server with its durability as it comes

Ours are done in two ways. As *tasks* they are in a queue, as theirs are: taken under a lease, a function
called for each with what it carries, acknowledged when that has returned. As *runs* each is a durable workflow of one step, with a history, and more
than the others promise. The clock runs from the first job that is added to the last that is done, in
one process. Rounds alternate between the contestants; a ratio is taken within each round, and the
median is shown with its range. An aim that is missed is told, not an error.

    ./dev bench jobs [--rounds 3] [--only redis] [--jobs 10000] [--json FILE]

What is not ours is installed from PyPI into environments of its own under .cache/ (bench/_rival.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from bench._machine import load
from bench._our_jobs import as_runs, as_tasks
from bench._pg_rivals import Jobs, Server
from bench._redis_jobs import PEERS, theirs
from bench._rival import environment
from bench._table import Line, as_json, in_words
from outlast.stores.postgres import PostgresStore
from outlast.stores.redis import RedisStore
from outlast.stores.sqlite import SqliteStore
from tools.serving.postgres import Cluster
from tools.serving.redis import start_own

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
PARTS = ("redis", "sqlite", "postgres")
AIM = 3.0
AT_ONCE = 10
"""Of procrastinate: more are not faster."""

Contestant = Callable[[int], Awaitable[Jobs]]


class Ring(NamedTuple):
    """Who meets whom on one backend."""

    ours: dict[str, Contestant]
    theirs: dict[str, Contestant]
    settings: str


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench jobs")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the rest out")
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    lines: list[Line] = []
    for part in options.only or PARTS:
        with tempfile.TemporaryDirectory(dir=CACHE) as name:
            found = _measure(part, Path(name), options.rounds, options.jobs)
        for line in found:
            print(in_words(line), flush=True)
        lines += found
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(part: str, folder: Path, rounds: int, count: int) -> list[Line]:
    match part:
        case "redis":
            url, server = start_own(folder)
            try:
                return asyncio.run(_compete(part, _on_redis(url), rounds, count))
            finally:
                server.stop()
        case "sqlite":
            return asyncio.run(_compete(part, _on_sqlite(folder), rounds, count))
        case _:
            folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its folder
            cluster = Cluster(folder)
            try:
                databases = Server(cluster.url, folder, part)
                return asyncio.run(_compete(part, _on_postgres(databases), rounds, count))
            finally:
                cluster.stop()


async def _compete(part: str, ring: Ring, rounds: int, count: int) -> list[Line]:
    found: dict[str, list[Jobs]] = {}
    for _ in range(rounds):
        for name, contestant in (*ring.ours.items(), *ring.theirs.items()):
            found.setdefault(name, []).append(await contestant(count))
    return [
        Line(
            f"{count:,} jobs {what} on {part}, as {way}, against {name}",
            "jobs/s",
            [count / seconds(one) for one in found[way]],
            [count / seconds(one) for one in found[name]],
            "theirs",
            AIM if what == "added and done" else None,
            note=ring.settings,
        )
        for what, seconds in _WHAT.items()
        for way in ring.ours
        for name in ring.theirs
    ]


_WHAT: dict[str, Callable[[Jobs], float]] = {
    "added and done": sum,
    "done": lambda jobs: jobs.work,
    "added": lambda jobs: jobs.enqueue,
}


def _on_redis(url: str) -> Ring:
    def store() -> RedisStore:
        return RedisStore(url, prefix=f"bench:{uuid.uuid4().hex}")

    def peer(number: int, name: str) -> Contestant:
        place = urlsplit(url)._replace(path=f"/{number + 1}").geturl()
        python = environment(name, PEERS[name])
        return lambda count: asyncio.to_thread(theirs, python, name, place, count)

    return Ring(
        {"tasks": lambda count: as_tasks(store(), count), "runs": lambda n: as_runs(store(), n)},
        {name: peer(number, name) for number, name in enumerate(("celery", "dramatiq"))},
        "appendfsync always, for all",
    )


def _on_sqlite(folder: Path) -> Ring:
    def store() -> SqliteStore:
        return SqliteStore(folder / f"{uuid.uuid4().hex}.db")

    def huey(count: int) -> Awaitable[Jobs]:
        python = environment("huey", PEERS["huey"])
        file = str(folder / f"{uuid.uuid4().hex}.huey")
        return asyncio.to_thread(theirs, python, "huey", file, count)

    return Ring(
        {"tasks": lambda count: as_tasks(store(), count), "runs": lambda n: as_runs(store(), n)},
        {"huey": huey},
        "ours: WAL, synchronous=FULL; huey as it comes: WAL, no sync",
    )


def _on_postgres(server: Server) -> Ring:
    async def tasks(count: int) -> Jobs:
        return await as_tasks(PostgresStore(await server.database()), count)

    async def runs(count: int) -> Jobs:
        return await as_runs(PostgresStore(await server.database()), count)

    async def procrastinate(count: int) -> Jobs:
        url = await server.database()
        return await asyncio.to_thread(server.procrastinate, url, count, AT_ONCE)

    return Ring(
        {"tasks": tasks, "runs": runs},
        {"procrastinate": procrastinate},
        "fsync=on, synchronous_commit=on, for both",
    )
