"""Bare inserts of the same rows into PostgreSQL, as many in a statement as there are callers: what a
store could reach that checks nothing."""

from __future__ import annotations

import time

import asyncpg
from msgspec import Raw

from bench._appends import an_event
from bench.peers._clock import made_ready
from outlast.model import new_id

TABLE = """
CREATE TABLE IF NOT EXISTS bare (
    run bigint, sequence bigint, id text, type text, version bigint, step_name text,
    timestamp bigint, token bigint, metadata text, data bytea, output bytea,
    PRIMARY KEY (run, sequence)
)
"""
INSERT = """
INSERT INTO bare SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
    $8::bigint[], $9::text[], $10::bytea[], $11::bytea[])
"""


async def bare_inserts(url: str, callers: int, each: int, size: int) -> float:
    """Seconds for `each` statements of `size` events for every caller."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLE)
        batches = [
            list(
                zip(
                    *(_row(run, one * size + n + 1) for run in range(callers) for n in range(size)),
                    strict=True,
                )
            )
            for one in range(each)
        ]
        await connection.execute("TRUNCATE bare")
        with made_ready():
            begun = time.perf_counter()
            for batch in batches:
                await connection.execute(INSERT, *batch)
            return time.perf_counter() - begun
    finally:
        await connection.close()


def _row(run: int, sequence: int) -> tuple[object, ...]:
    event, now = an_event("bare", sequence), time.time_ns() // 1000
    data, output = bytes(event.data), bytes(event.output or Raw(b""))
    return run, sequence, new_id(), event.type, 1, event.step_name, now, 1, None, data, output
