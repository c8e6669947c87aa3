"""Runs that sleep, in a process of its own, so that nothing that others have left behind is used again
and makes its memory look small:

    python -m bench._sleepers PLACE COUNT IDLE

Puts COUNT runs to sleep until one moment, far enough away that all sleep by then; looks for IDLE seconds
how often the store is asked while nothing happens; and waits until all have ended after that moment.
Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from redis.asyncio import Redis

import outlast
from bench._machine import resident
from bench._stores import settings_of, store_at
from bench.peers._clock import wait_for_the_word
from outlast.ports import Store
from outlast.stores.sqlite import SqliteStore

AT_ONCE = 200
FIRST = 500
"""Put to sleep before the first look, twice: code, caches and connections are there by then, and the
second time tells how long the others are going to take."""

SPARES = (1.5, 4.0, 12.0)
"""Times what it seems to take until all sleep before they wake; the next if the one before was too few,
because something else kept the machine busy."""

SETTLE = 11.0
"""Seconds until PostgreSQL has counted the last transaction: a connection that is idle tells it of
those that it had within ten."""

awake: dict[datetime, int] = {}
"""Runs that have not woken yet, by the moment when they are due."""

over = asyncio.Event()


@outlast.step
async def prepare(number: int) -> int:
    """Do next to nothing."""
    return number


@outlast.workflow
async def sleeper(moment: datetime) -> None:
    """A step, and a long sleep."""
    await prepare(1)
    await outlast.sleep_until(moment)
    if moment in awake:
        awake[moment] -= 1
        if awake[moment] == 0:
            over.set()


async def main(place: str, count: int, idle: int) -> None:
    """Measure."""
    wait_for_the_word()
    statements = [0]
    async with (
        _counted(place, statements) as store,
        outlast.App(store, workflows=[sleeper]) as app,
    ):
        far = datetime.now(UTC) + timedelta(days=30)
        await _start(app, FIRST, far)
        begun = time.perf_counter()
        await _start(app, FIRST, far)
        each = (time.perf_counter() - begun) / FIRST
        for spare in SPARES:
            found = await _measured(app, place, statements, count, idle, spare * each * count)
            if found is not None:
                print(json.dumps({**found, "count": count, "settings": settings_of(store)}))
                return
    raise AssertionError("the first woke before the last slept, whenever they were due")


async def _measured(
    app: outlast.App, place: str, statements: list[int], count: int, idle: int, needed: float
) -> dict[str, float] | None:
    """What was found, if all sleep in the seconds that they seem to need."""
    settle = SETTLE if place.startswith("postgresql:") else 0.0
    moment = datetime.now(UTC) + timedelta(seconds=needed + settle + idle + 1.5)
    awake.clear()
    awake[moment] = count
    over.clear()
    gc.collect()
    before, begun = resident(), time.perf_counter()
    await _start(app, count, moment)
    slept = time.perf_counter() - begun
    gc.collect()
    after = resident()
    await asyncio.sleep(settle)
    asked = _asked(place, statements)
    at_first = await asked()
    await asyncio.sleep(idle)
    queries = (await asked() - at_first) / idle
    if datetime.now(UTC) > moment:
        return None
    await asyncio.sleep(max((moment - datetime.now(UTC)).total_seconds(), 0))
    begun = time.perf_counter()
    await over.wait()
    await app._engine.drivers.settled()  # noqa: SLF001 - the last commits too
    woke = time.perf_counter() - begun
    return {"memory": after - before, "slept": slept, "queries": queries, "woke": woke}


async def _start(app: outlast.App, count: int, moment: datetime) -> None:
    """Start runs, a few at a time, and wait until these sleep and have left memory."""
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        await asyncio.gather(*(app.start(sleeper(moment)) for _ in numbers))
        await app._engine.drivers.settled()  # noqa: SLF001


# -- how often the store is asked -----------------------------------------------------------------


def _counted(place: str, statements: list[int]) -> Store:
    """The store; SQLite's statements are counted here, the servers count what they are asked."""
    if not place.startswith("sqlite:"):
        return store_at(place)

    class Counted(sqlite3.Connection):
        def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
            statements[0] += 1
            return super().execute(sql, *parameters)

    def connect(path: str) -> Counted:
        return sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, factory=Counted
        )

    return SqliteStore(place.removeprefix("sqlite:///"), connect=connect)


def _asked(place: str, statements: list[int]) -> Callable[[], Awaitable[int]]:
    async def of_sqlite() -> int:
        return statements[0]

    async def of_postgres() -> int:
        server = await asyncpg.connect(place.rpartition("/")[0] + "/postgres")
        try:
            name = place.rpartition("/")[2]
            sql = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1"
            return int(await server.fetchval(sql, name))
        finally:
            await server.close()

    async def of_redis() -> int:
        async with Redis.from_url(place.partition("#")[0]) as server:
            return int((await server.info("stats"))["total_commands_processed"])

    if place.startswith("sqlite:"):
        return of_sqlite
    return of_postgres if place.startswith("postgresql:") else of_redis


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
