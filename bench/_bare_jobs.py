"""A bare loop of SELECT … FOR UPDATE SKIP LOCKED: the least that a queue in PostgreSQL can do, when jobs
are taken one by one."""

from __future__ import annotations

import asyncio
import time

import asyncpg

from bench._our_jobs import Jobs
from bench.peers._clock import made_ready

AT_ONCE = 10
"""Connections, of procrastinate too: more are not faster."""

BATCH = 1000


async def bare_jobs(url: str, count: int) -> Jobs:
    """Seconds to add so many jobs, and to do them."""
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

        with made_ready():
            begun = time.perf_counter()
            for first in range(0, count, BATCH):
                jobs = [b"tiny"] * min(BATCH, count - first)
                await pool.execute("INSERT INTO jobs (data) SELECT unnest($1::bytea[])", jobs)
            enqueued = time.perf_counter()
            await asyncio.gather(*(work() for _ in range(AT_ONCE)))
            ended = time.perf_counter()
        if done != count:
            raise AssertionError(f"{done} of {count} were done")
        return Jobs(enqueued - begun, ended - enqueued)
