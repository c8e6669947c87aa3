"""What SQLAlchemy costs: the same workflows on the plain store and on the engine of an application.

Ten-step workflows, a hundred at once and one at a time; on PostgreSQL by asyncpg, by psycopg in a loop
and by psycopg in threads, each also with the projection, and in a SQLite file. Rounds alternate between
the contestants, and a ratio is taken within each round. Aim: at least a third of the plain store's pace.

    ./dev bench sqlalchemy [--rounds 3] [--at-once 100] [--json FILE] [--plot FOLDER]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sqlalchemy import MetaData, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import outlast
from bench._arena import Arena, Size, compete
from bench._our_steps import ten_steps
from bench._stores import settings_of, store_at
from bench._table import Aim, Contest, Entry
from bench.peers._clock import STEPS, made_ready
from outlast.contrib.sqlalchemy import make_tables, store_of
from outlast.ports.store import Store

AIM = 3.0
"""Times the plain store may be faster."""

Paces = tuple[list[float], str]
DRIVERS: dict[str, tuple[str, Any, bool]] = {
    "PostgreSQL, asyncpg": ("postgresql+asyncpg", create_async_engine, False),
    "PostgreSQL, psycopg": ("postgresql+psycopg", create_async_engine, False),
    "PostgreSQL, psycopg in threads": ("postgresql+psycopg", create_engine, False),
    "PostgreSQL, asyncpg, with the projection": ("postgresql+asyncpg", create_async_engine, True),
    "SQLite": ("sqlite", create_engine, False),
    "SQLite, with the projection": ("sqlite", create_engine, True),
}


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "at_once": Size(100, 100, "workflows at once"),
        "one_by_one": Size(20, 100, "workflows one at a time"),
    }
    return compete(__name__, argv, {"steps": steps}, rounds=3, sizes=sizes)


def steps(arena: Arena) -> list[Contest]:
    """Microseconds for a step: the plain store first, then each engine against it."""
    bases = ("PostgreSQL", "SQLite")
    contestants: dict[str, Callable[[], Paces]] = {
        f"outlast, {base}, plain": partial(_plain, arena, base) for base in bases
    }
    for name in DRIVERS:
        contestants[f"outlast on SQLAlchemy, {name}"] = partial(_engine, arena, name)
    found, _ = arena.alternate(contestants)
    contests = []
    for number, how in enumerate((f"{arena.size('at_once')} at once", "one at a time")):
        for base in bases:
            entries = [
                Entry(who, [paces[number] / STEPS * 1e6 for paces, _ in rounds], rounds[0][1])
                for who, rounds in found.items()
                if f", {base}" in who
            ]
            aims = [Aim(AIM, entry.who) for entry in entries[1:]]
            name = f"a step on SQLAlchemy, {how}, {base}"
            contests.append(Contest(name, "µs", entries, less=True, aims=aims, grows=True))
    return contests


def _plain(arena: Arena, base: str) -> Paces:
    return asyncio.run(_pace(store_at(arena.place(base)), _sizes(arena)))


def _engine(arena: Arena, name: str) -> Paces:
    driver, make, projected = DRIVERS[name]
    url = make_url(arena.place(name.partition(",")[0])).set(drivername=driver)
    return asyncio.run(_on_engine(make(url), projected, _sizes(arena)))


def _sizes(arena: Arena) -> tuple[int, int]:
    return arena.size("at_once"), arena.size("one_by_one")


async def _on_engine(engine: Any, projected: bool, sizes: tuple[int, int]) -> Paces:
    if projected:
        metadata = MetaData()
        make_tables(metadata)
        if isinstance(engine, AsyncEngine):
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
        else:
            metadata.create_all(engine)
    pace = await _pace(store_of(engine, projection=projected), sizes)
    if isinstance(engine, AsyncEngine):
        await engine.dispose()
    else:
        engine.dispose()
    return pace


async def _pace(store: Store, sizes: tuple[int, int]) -> Paces:
    """Seconds of a workflow: many at once, and one at a time; and how durable the store is."""
    async with store, outlast.App(store, workflows=[ten_steps]) as app:

        async def once() -> None:
            if await (await app.start(ten_steps(1))).result() != 1 + STEPS:
                raise AssertionError("a wrong result")

        await once()
        at_once, alone = sizes
        with made_ready():
            begun = time.perf_counter()
            await asyncio.gather(*(once() for _ in range(at_once)))
            between = time.perf_counter()
            for _ in range(alone):
                await once()
            ended = time.perf_counter()
        return [(between - begun) / at_once, (ended - between) / alone], settings_of(store)
