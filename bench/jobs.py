"""Tiny jobs through one worker process, on each backend next to those who have made it their own.

redis      Celery, Dramatiq and huey, on one server with `appendfsync always`
sqlite     huey, on a file each
postgres   procrastinate, and a bare loop of SELECT … FOR UPDATE SKIP LOCKED, on one server with its
           durability as it comes

Each adds and does them in the way that is fastest for it. Ours are done in three ways. As *tasks* they
are in a queue, as theirs are: added a hundred at a time, taken under a lease, a function called for each
with what it carries, acknowledged when that has returned. As *tasks one by one* eight callers add them,
one at a time, as the peers on Redis do. As *runs* each is a durable workflow of one step, with a history,
and more than the others promise. The clock runs from the first job that is added to the last that is
done, in one process.

    ./dev bench jobs [--rounds 3] [--only redis] [--jobs 10000] [--alone] [--json FILE] [--plot FOLDER]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench._arena import Arena, Size, compete
from bench._bare_jobs import AT_ONCE, bare_jobs
from bench._our_jobs import Jobs, as_runs, as_tasks, one_by_one
from bench._peers import theirs, told
from bench._stores import store_at
from bench._table import Aim, Contest, Entry

AIM = 3.0
WHAT: dict[str, Callable[[Jobs], float]] = {
    "added and done": sum,
    "done": lambda jobs: jobs.work,
    "added": lambda jobs: jobs.enqueue,
}
WAYS = {"tasks": as_tasks, "tasks one by one": one_by_one, "runs": as_runs}

AIMED_AT = ("tasks", "runs")
"""One by one is shown, for what taking them together gains."""


class Peer(NamedTuple):
    """A queue of others, and how durable it is here."""

    package: str
    program: str
    settings: str


PEERS = {
    "Redis": [Peer(name, "jobs", "appendfsync always") for name in ("celery", "dramatiq", "huey")],
    "SQLite": [Peer("huey", "jobs", "as it comes: WAL, no sync")],
    "PostgreSQL": [Peer("procrastinate", "procrastinate_jobs", "the same server")],
}
SETTINGS = {
    "Redis": "appendfsync always",
    "SQLite": "WAL, synchronous=FULL",
    "PostgreSQL": "fsync=on, synchronous_commit=on",
}

PACKAGES = ("celery", "dramatiq", "huey", "procrastinate")


def main(argv: list[str]) -> int:
    """Measure."""
    names = {"redis": "Redis", "sqlite": "SQLite", "postgres": "PostgreSQL"}
    parts = {part: partial(jobs, store=store) for part, store in names.items()}
    sizes = {"jobs": Size(10_000, 10_000, "jobs to add and do")}
    return compete(__name__, argv, parts, rounds=3, sizes=sizes, peers=PACKAGES)


def jobs(arena: Arena, store: str) -> list[Contest]:
    """On one backend."""
    count = arena.size("jobs")
    contestants: dict[str, Callable[[], Jobs]] = {
        f"outlast, {way}": partial(_ours, arena, store, way) for way in WAYS
    }
    settings = dict.fromkeys(contestants, SETTINGS[store])
    if store == "PostgreSQL":
        contestants["bare SKIP LOCKED"] = lambda: asyncio.run(bare_jobs(arena.place(store), count))
        settings["bare SKIP LOCKED"] = SETTINGS[store]
    for peer in PEERS[store] if not arena.alone else ():
        contestants[peer.package] = partial(_theirs, arena, store, peer)
        settings[peer.package] = peer.settings
    found, left_out = arena.alternate(contestants)
    contests = []
    for way in WAYS:
        other = {f"outlast, {one}" for one in WAYS if one != way}
        for what, seconds in WHAT.items():
            entries = [
                Entry(who, [count / seconds(one) for one in rounds], settings[who])
                for who, rounds in found.items()
                if who not in other
            ]
            peers = [
                entry.who for entry in entries if entry.who in {p.package for p in PEERS[store]}
            ]
            is_aimed_at = what == "added and done" and way in AIMED_AT
            aims = [Aim(AIM, who) for who in peers if is_aimed_at]
            name = f"{count:,} jobs {what}, as {way}, {store}"
            contests.append(Contest(name, "jobs/s", entries, aims=aims, left_out=left_out))
    return contests


def _ours(arena: Arena, store: str, way: str) -> Jobs:
    place = arena.place(store)
    return asyncio.run(WAYS[way](store_at(place), arena.size("jobs")))


def _theirs(arena: Arena, store: str, peer: Peer) -> Jobs:
    place = arena.place(store).removeprefix("sqlite:///").partition("#")[0]
    args = [place, str(arena.size("jobs"))]
    if peer.program == "jobs":
        args = [peer.package, *args]
    else:
        args.append(str(AT_ONCE))
    [found] = told([theirs(peer.package, peer.program, *args)], arena.folder)
    return Jobs(**found)
