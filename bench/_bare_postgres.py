"""Bare inserts of the same rows into PostgreSQL, as many in a statement as there are callers on a
connection: what a store could reach that checks nothing, or only the fence.

There are two connections, as outlast has two batches on their way, each with half of the callers; one
caller has one. *Unchecked* are the inserts alone. *Fenced* besides moves each run's row on, on condition
of its token and its sequence, in the same statement, and inserts only what belongs to rows that it has
hit.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
from msgspec import Raw

from bench._appends import an_event
from bench.peers._clock import made_ready
from outlast.model import new_id

CONNECTIONS = 2
TOKEN = 7
TABLES = """
CREATE TABLE bare_runs (run bigint PRIMARY KEY, token bigint, sequence bigint);
CREATE TABLE bare (
    run bigint, sequence bigint, id text, type text, version bigint, step_name text,
    timestamp bigint, token bigint, metadata text, data bytea, output bytea,
    PRIMARY KEY (run, sequence)
)
"""
ROWS = """
unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::bigint[],
    $8::bigint[], $9::text[], $10::bytea[], $11::bytea[]) AS rows(run)
"""
INSERT = f"INSERT INTO bare SELECT * FROM {ROWS}"
FENCED = f"""
WITH moved AS (
    UPDATE bare_runs SET sequence = bare_runs.sequence + $15
    FROM unnest($12::bigint[], $13::bigint[], $14::bigint[]) AS held(run, token, sequence)
    WHERE bare_runs.run = held.run AND bare_runs.token = held.token
        AND bare_runs.sequence = held.sequence
    RETURNING bare_runs.run
)
{INSERT} JOIN moved USING (run)
"""

Statement = list[Any]
"""The parameters of one."""


async def bare_inserts(url: str, callers: int, each: int, size: int, *, fenced: bool) -> float:
    """Seconds for `each` statements of `size` events for every caller."""
    async with AsyncExitStack() as stack:
        connections = []
        for _ in range(min(CONNECTIONS, callers)):
            connections.append(await asyncpg.connect(url))
            stack.push_async_callback(connections[-1].close)
        await connections[0].execute("DROP TABLE IF EXISTS bare, bare_runs")
        await connections[0].execute(TABLES)
        begin = "INSERT INTO bare_runs SELECT run, $1, 0 FROM generate_series(0, $2 - 1) AS run"
        await connections[0].execute(begin, TOKEN, callers)
        shares = [range(first, callers, CONNECTIONS) for first in range(len(connections))]
        scripts = [
            [_statement(runs, number, size, fenced=fenced) for number in range(each)]
            for runs in shares
        ]

        async def write(connection: Any, statements: list[Statement], rows: int) -> None:
            sql = FENCED if fenced else INSERT
            for parameters in statements:
                if await connection.execute(sql, *parameters) != f"INSERT 0 {rows}":
                    raise AssertionError("fenced")

        with made_ready():
            begun = time.perf_counter()
            await asyncio.gather(
                *(
                    write(connection, script, len(runs) * size)
                    for connection, script, runs in zip(connections, scripts, shares, strict=True)
                )
            )
            return time.perf_counter() - begun


def _statement(runs: range, number: int, size: int, *, fenced: bool) -> Statement:
    after = number * size
    rows = [_row(run, after + n + 1) for run in runs for n in range(size)]
    columns: Statement = [list(column) for column in zip(*rows, strict=True)]
    held = [list(runs), [TOKEN] * len(runs), [after] * len(runs), size]
    return [*columns, *held] if fenced else columns


def _row(run: int, sequence: int) -> tuple[object, ...]:
    event, now = an_event("bare", sequence), time.time_ns() // 1000
    data, output = bytes(event.data), bytes(event.output or Raw(b""))
    return run, sequence, new_id(), event.type, 1, event.step_name, now, TOKEN, None, data, output
