"""Ten thousand tiny jobs: our queue, procrastinate, and a bare loop of SELECT … FOR UPDATE SKIP LOCKED."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from bench._pg_rivals import Jobs, Server
from bench._table import Line, made_ready
from outlast.model import Task
from outlast.stores.postgres import PostgresQueue

JOBS = 10_000
AT_ONCE = 10
BATCH = 1000
AIM = 5.0


async def measure_jobs(server: Server, rounds: int, *, alone: bool) -> list[Line]:
    """Jobs a second, enqueued and done."""
    found: dict[str, list[Jobs]] = {"ours": [], "bare": [], "procrastinate": []}
    for _ in range(rounds):
        found["ours"].append(await _ours(await server.database()))
        found["bare"].append(await _bare(await server.database()))
        if not alone:
            url = await server.database()
            told = await asyncio.to_thread(server.procrastinate, url, JOBS, AT_ONCE)
            found["procrastinate"].append(told)
    note = await server.settings()
    ours = found.pop("ours")
    lines = []
    for name, theirs in found.items():
        if theirs:
            aim = AIM if name == "procrastinate" else None
            lines += [
                Line(
                    f"{JOBS:,} tiny jobs {verb}, {AT_ONCE} at once, against {name}",
                    "jobs/s",
                    [JOBS / one[place] for one in ours],
                    [JOBS / one[place] for one in theirs],
                    name,
                    aim if verb == "done" else None,
                    note=note,
                )
                for place, verb in ((1, "done"), (0, "enqueued"))
            ]
    return lines


async def _ours(url: str) -> Jobs:
    async with PostgresQueue(url, notify=False, pool_size=AT_ONCE) as queue:
        batches = [
            [Task(name="tiny", id=f"{start + one}") for one in range(BATCH)]
            for start in range(0, JOBS, BATCH)
        ]
        done = 0

        async def work(owner: str) -> None:
            nonlocal done
            while delivery := await queue.take("tiny", owner=owner, visibility=60.0):
                done += 1
                await queue.ack(delivery.claim)

        with made_ready():
            begun = time.perf_counter()
            for batch in batches:
                await queue.enqueue("tiny", batch)
            enqueued = time.perf_counter()
            await asyncio.gather(*(work(f"w{number}") for number in range(AT_ONCE)))
            ended = time.perf_counter()
        if done != JOBS:
            raise AssertionError(f"{done} of {JOBS} were done")
        return Jobs(enqueued - begun, ended - enqueued)


async def _bare(url: str) -> Jobs:
    async with asyncpg.create_pool(url, min_size=AT_ONCE, max_size=AT_ONCE) as pool:
        await pool.execute("CREATE TABLE jobs (id bigserial PRIMARY KEY, data bytea)")
        done = 0

        async def work() -> None:
            nonlocal done
            async with pool.acquire() as connection:
                while True:
                    async with connection.transaction():
                        job = await connection.fetchval(
                            "SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
                        )
                        if job is None:
                            return
                        await connection.execute("DELETE FROM jobs WHERE id = $1", job)
                        done += 1

        begun = time.perf_counter()
        for _ in range(0, JOBS, BATCH):
            await pool.execute(
                "INSERT INTO jobs (data) SELECT unnest($1::bytea[])", [b"tiny"] * BATCH
            )
        enqueued = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        ended = time.perf_counter()
        if done != JOBS:
            raise AssertionError(f"{done} of {JOBS} were done")
        return Jobs(enqueued - begun, ended - enqueued)
