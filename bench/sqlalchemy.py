"""What SQLAlchemy costs: the same workflows on the plain store and on the engine of an application.

Ten-step workflows, a hundred at once and one at a time; on PostgreSQL by asyncpg, by psycopg in a loop
and by psycopg in threads, each also with the projection, and in a SQLite file. Rounds alternate between
the contestants, and a ratio is taken within each round. Aim: at least a third of the plain store's pace.

    ./dev bench sqlalchemy [--rounds 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, create_engine, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import outlast
from bench._machine import load
from bench._pg_rivals import Server
from bench._table import Line, as_json, in_words, made_ready
from bench._ten import ALONE, AT_ONCE, STEPS, ten_steps, timed
from outlast.contrib.sqlalchemy import make_tables, store_of
from outlast.ports.store import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.sqlite import SqliteStore
from tools.serving.postgres import Cluster

CACHE = Path(__file__).parents[1] / ".cache" / "bench"
AIM = 1 / 3
DRIVERS: dict[str, tuple[str, Any, bool]] = {
    "PostgreSQL, asyncpg": ("postgresql+asyncpg", create_async_engine, False),
    "PostgreSQL, psycopg": ("postgresql+psycopg", create_async_engine, False),
    "PostgreSQL, psycopg in threads": ("postgresql+psycopg", create_engine, False),
    "PostgreSQL, asyncpg, with the projection": ("postgresql+asyncpg", create_async_engine, True),
    "SQLite": ("sqlite", create_engine, False),
    "SQLite, with the projection": ("sqlite", create_engine, True),
}


def main(argv: list[str]) -> int:
    """Measure, print a table, write JSON if asked."""
    parser = argparse.ArgumentParser(prog="./dev bench sqlalchemy")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(argv)
    print(f"load of the machine: {load()}; below 1, or the figures say little")
    CACHE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
        cluster = Cluster(folder)
        try:
            server = Server(cluster.url, folder, "sqlalchemy")
            lines = asyncio.run(_measure(server, folder, options.rounds))
        finally:
            cluster.stop()
    for line in lines:
        print(in_words(line), flush=True)
    print(f"load of the machine: {load()}")
    if options.json:
        results = {line.name: as_json(line) for line in lines}
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return 0


async def _measure(server: Server, folder: Path, rounds: int) -> list[Line]:
    found: dict[tuple[str, str], list[float]] = {}
    plain: dict[tuple[str, str], list[float]] = {}
    for number in range(rounds):
        for how in ("together", "alone"):
            for base in ("PostgreSQL", "SQLite"):
                store: Store = (
                    PostgresStore(await server.database())
                    if base == "PostgreSQL"
                    else SqliteStore(folder / f"{number}{how}.db")
                )
                plain.setdefault((base, how), []).append(await _pace(store, how))
            for name, (driver, make, projected) in DRIVERS.items():
                url = make_url(
                    await server.database()
                    if driver.startswith("postgresql")
                    else f"sqlite:///{folder / f'{number}{how}{projected}.app.db'}"
                ).set(drivername=driver)
                pace = await _on_engine(make(url), how, projected=projected)
                found.setdefault((name, how), []).append(pace)
    return [
        Line(
            f"{f'{AT_ONCE} at once' if how == 'together' else 'one at a time'}, {name}",
            "steps/s",
            paces,
            plain[name.partition(",")[0], how],
            "the plain store",
            aim=AIM,
        )
        for (name, how), paces in found.items()
    ]


async def _on_engine(engine: Any, how: str, *, projected: bool) -> float:
    if projected:
        metadata = MetaData()
        make_tables(metadata)
        if isinstance(engine, AsyncEngine):
            async with engine.begin() as connection:
                await connection.run_sync(metadata.create_all)
        else:
            metadata.create_all(engine)
    pace = await _pace(store_of(engine, projection=projected), how)
    if isinstance(engine, AsyncEngine):
        await engine.dispose()
    else:
        engine.dispose()
    return pace


async def _pace(store: Store, how: str) -> float:
    async with store, outlast.App(store, workflows=[ten_steps]) as app:
        await timed(app)
        number = AT_ONCE if how == "together" else ALONE
        with made_ready():
            begun = time.perf_counter()
            if how == "together":
                await asyncio.gather(*(timed(app) for _ in range(number)))
            else:
                for _ in range(number):
                    await timed(app)
            return number * STEPS / (time.perf_counter() - begun)
