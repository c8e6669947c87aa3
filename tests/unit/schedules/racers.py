"""A process that keeps schedules, as light as can be: ten of them begin at once."""

from __future__ import annotations

import asyncio
import os
from multiprocessing.connection import Connection as Pipe

import outlast
from outlast.ports.store import Store

LEASE = 1.0


@outlast.step
async def work() -> None:
    file = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, f"{outlast.step_info().run_id}\n".encode())
    finally:
        os.close(file)


@outlast.workflow
async def job() -> None:
    await work()


def schedules() -> list[outlast.Schedule]:
    """Two, so that they are kept by different processes."""
    return [
        outlast.Schedule("tick", job(), every=1, overlap="allow", catch_up="all"),
        outlast.Schedule("tock", job(), cron="* * * * * *", overlap="allow", catch_up="all"),
    ]


def open_store(kind: str, place: str) -> Store:
    """A store on what all of them share."""
    if kind == "sqlite":
        from outlast.stores.sqlite import SqliteStore

        return SqliteStore(place)
    if kind == "postgres":
        from outlast.stores.postgres import PostgresStore

        return PostgresStore(os.environ["OUTLAST_TEST_POSTGRES"], schema=place)
    from outlast.stores.redis import RedisStore

    return RedisStore(os.environ["OUTLAST_TEST_REDIS"], prefix=place)


def keep(pipe: Pipe, kind: str, place: str, ledger: str) -> str:
    """A process that keeps the schedules until it is told to stop."""
    os.environ["LEDGER"] = ledger

    async def live() -> None:
        async with open_store(kind, place) as store:
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)
            async with outlast.App(store, schedules=schedules(), lease=LEASE):
                await asyncio.to_thread(pipe.recv)

    asyncio.run(live())
    return "stopped"
