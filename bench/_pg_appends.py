"""Appends: the store next to bare inserts of the same rows, a hundred in a transaction."""

from __future__ import annotations

import asyncio
import time

import asyncpg
from msgspec import Raw

from bench._pg_rivals import Server
from bench._table import Line, made_ready
from outlast.engine.journal import Journal
from outlast.model import Commit, Event, Hold, Run, new_id
from outlast.stores.postgres import PostgresStore

ROWS = 100
TRANSACTIONS = 60
AIM = 0.5
DATA = Raw(b'{"kind":"step","attempt":1,"input":{"order":"o-12345","amount":199}}')

TABLE = """
CREATE TABLE bare (
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


async def measure_appends(server: Server, rounds: int) -> list[Line]:
    """Events a second, one to a commit and ten to a commit."""
    bare: list[float] = []
    ours: dict[str, list[float]] = {}
    for _ in range(rounds):
        url = await server.database()
        bare.append(await _bare(url))
        async with PostgresStore(url, notify=False) as store:
            for name, measure in (
                (f"{ROWS} commits of 1 event in a call", lambda s: _batches(s, ROWS, 1)),
                (f"{ROWS // 10} commits of 10 events in a call", lambda s: _batches(s, 10, 10)),
                (f"{ROWS} callers of a journal", _journal),
            ):
                ours.setdefault(name, []).append(await measure(store))
    note = await server.settings()
    return [
        Line(f"append, {name}", "events/s", speeds, bare, "bare inserts", AIM, note=note)
        for name, speeds in ours.items()
    ]


async def _bare(url: str) -> float:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(TABLE)
        data = bytes(DATA)
        batches = [
            list(zip(*(_row(run, number + 1, data) for run in range(ROWS)), strict=True))
            for number in range(TRANSACTIONS)
        ]
        with made_ready():
            begun = time.perf_counter()
            for batch in batches:
                await connection.execute(INSERT, *batch)
            return ROWS * TRANSACTIONS / (time.perf_counter() - begun)
    finally:
        await connection.close()


def _row(run: int, sequence: int, data: bytes) -> tuple[object, ...]:
    now = time.time_ns() // 1000
    return run, sequence, new_id(), "step.completed", 1, "increase", now, 1, None, data, None


async def _batches(store: PostgresStore, runs: int, size: int) -> float:
    ids = await _begun(store, runs)
    batches = [[_commit(id, token, size) for id, token in ids] for _ in range(TRANSACTIONS)]
    await store.commit(batches[0])
    with made_ready():
        begun = time.perf_counter()
        for batch in batches[1:]:
            for outcome in await store.commit(batch):
                assert not isinstance(outcome, Exception), outcome
        return runs * size * (TRANSACTIONS - 1) / (time.perf_counter() - begun)


async def _journal(store: PostgresStore) -> float:
    ids = await _begun(store, ROWS)
    journal = Journal(store)

    async def call(id: str, token: int) -> None:
        for _ in range(TRANSACTIONS):
            await journal.commit(_commit(id, token, 1))

    with made_ready():
        begun = time.perf_counter()
        await asyncio.gather(*(call(id, token) for id, token in ids))
        seconds = time.perf_counter() - begun
    return ROWS * TRANSACTIONS / seconds


async def _begun(store: PostgresStore, runs: int) -> list[tuple[str, int]]:
    outcomes = await store.commit(
        [
            Commit(run_id=id, create=Run(id=id, workflow="bench"), hold=Hold("bench", 3600.0))
            for id in (new_id() for _ in range(runs))
        ]
    )
    return [(one.run_id, one.token) for one in outcomes if not isinstance(one, Exception)]


def _commit(id: str, token: int, size: int) -> Commit:
    events = tuple(
        Event(type="step.completed", run_id=id, step_name="increase", data=DATA)
        for _ in range(size)
    )
    return Commit(run_id=id, token=token, events=events)
