"""A hundred thousand runs: the first page, an indexed filter and a count read a few rows, not all.

Rows are counted by the database itself: by SQLite in steps of its machine, by PostgreSQL in what it
has read, by Redis in commands and what they look through. No clock is asked.
"""

from __future__ import annotations

import random
import sqlite3
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast.model.commit import Commit
from outlast.model.query import Order
from outlast.model.run import Run, Status
from outlast.ports.store import Store
from outlast.query import count, parse, search
from outlast.stores.redis.keys import framed, sortable
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.sample_runs import NOW
from tests.stores.postgres.places import FreshStore, rows_read
from tests.stores.postgres.places import ask as ask_server
from tests.stores.redis.servers import single

MANY = 100_000
WORKFLOWS = ["checkout", "invoice", "import"]
QUESTIONS = ["", "status:failed", "workflow:invoice status:completed", "attr.tenant=acme"]
ORDERED = [
    (Order.OLDEST, ""),
    (Order.LATEST, ""),
    (Order.STALEST, ""),
    (Order.LATEST, "updated<=now"),
    (Order.LATEST, "updated>now-20d"),
]


def a_run(number: int) -> Run:
    """One of many, mostly ended, as in a store that has been used for a while."""
    chance = random.Random(number)
    status = Status.COMPLETED if number % 10 else chance.choice(list(Status))
    return Run(
        id=f"run-{number:06}",
        workflow=WORKFLOWS[number % 3],
        status=status,
        attributes={"tenant": "acme"} if number % 100 == 0 else {},
        created_at=NOW - timedelta(seconds=number),
        ended_at=NOW if status.terminal else None,
    )


async def fill(store: Store, many: int = MANY) -> None:
    """Put them in, by the store's own door."""
    for start in range(0, many, 2_000):
        runs = [a_run(number) for number in range(start, start + 2_000)]
        await store.commit([Commit(run_id=run.id, create=run) for run in runs])


async def ask(store: Store, question: str, order: Order = Order.NEWEST) -> int:
    """The first page, as `ls` asks for it; how many runs it has."""
    page = await search(store, parse(question), order=order, limit=20, now=NOW)
    return len(page.runs)


EXPECTED = {
    "": MANY,
    "status:failed": sum(a_run(n).status is Status.FAILED for n in range(0, MANY, 10)),
    "workflow:invoice": len(range(1, MANY, 3)),
}


FIRST = range(2_000)
COPIED = {
    "": len(FIRST),
    "status:failed": sum(a_run(n).status is Status.FAILED for n in FIRST),
    "workflow:invoice": sum(a_run(n).workflow == "invoice" for n in FIRST),
}


class Steps:
    """A connection whose steps are counted by SQLite."""

    def __init__(self) -> None:
        self.taken = 0

    def connect(self, path: str) -> Any:
        """Open a file, and count from now on."""
        connection = sqlite3.connect(
            path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=512
        )
        connection.set_progress_handler(self._tick, 100)
        return connection

    def _tick(self) -> int:
        self.taken += 100
        return 0


async def test_sqlite_reads_a_few_rows(tmp_path: Path) -> None:
    """A page takes some thousand steps of SQLite's machine, a count some hundred; to walk past ten
    thousand runs takes more than fifty thousand. Counts are exact all the same."""
    steps, path = Steps(), tmp_path / "full.db"
    async with SqliteStore(path, synchronous="normal", clock=ManualClock(NOW)) as store:
        await fill(store)
    async with SqliteStore(path, connect=steps.connect) as store:
        for question in QUESTIONS:
            before = steps.taken
            assert await ask(store, question) == 20
            assert steps.taken - before < 20_000, question
        for order, question in ORDERED:
            before = steps.taken
            assert await ask(store, question, order) == 20
            assert steps.taken - before < 20_000, (order, question)
        for question, expected in EXPECTED.items():
            before = steps.taken
            number = await count(store, parse(question), cap=10, now=NOW)
            assert (number.number, number.more) == (expected, False)
            assert steps.taken - before < 2_000, question
        before = steps.taken
        await search(store, parse("id:nobody"), limit=20, budget=10_000, now=NOW)
        assert steps.taken - before > 50_000, "the steps are counted"


@pytest.mark.server
async def test_postgres_reads_a_few_rows() -> None:
    """By what the server says that it has read: some hundred rows, for pages and for counts."""
    async with FreshStore(clock=ManualClock(NOW)) as store:
        await _fill_postgres(store)
        database = store.database
        for question in QUESTIONS:
            assert await rows_read(store, partial(ask, store, question)) < 2_000, question
        for order, question in ORDERED:
            read = await rows_read(store, partial(ask, store, question, order))
            assert 20 <= read < 2_000, (order, question)
        for question, times in COPIED.items():
            number = await count(store, parse(question), cap=10, now=NOW)
            assert number.number == 50 * times
            read = await rows_read(store, partial(count, store, parse(question), now=NOW))
            assert read < 2_500, question
        walk = await ask_server(f'SELECT count(*) FROM "{database.queries.schema}".runs')
        assert walk[0][0] == MANY


async def _fill_postgres(store: Any) -> None:
    """A template of a few thousand by the store's own door, and the rest by the server: its triggers
    keep the counts all the same."""
    await fill(store, 2_000)
    render = store.database.queries.render
    async with store.database.acquire() as connection:
        await connection.execute(
            render("""
            INSERT INTO @runs (id, uid, workflow, status, created_at, updated_at, ended_at)
            SELECT 'copy-' || n || '-' || r.id, r.uid, r.workflow, r.status,
                   r.created_at - n::bigint * 2000000000, r.updated_at - n::bigint, r.ended_at
            FROM @runs AS r, generate_series(1, 49) AS n
        """)
        )
        await connection.execute(
            render("""
            INSERT INTO @run_details (key) SELECT key FROM @runs WHERE id LIKE 'copy-%'
        """)
        )
        await connection.execute(
            render("""
            INSERT INTO @attributes (run_key, hash, created_at)
            SELECT c.key, a.hash, c.created_at
            FROM @attributes AS a JOIN @runs AS r ON r.key = a.run_key
            JOIN @runs AS c ON c.id LIKE 'copy-%' AND right(c.id, 10) = r.id
        """)
        )


@pytest.mark.server
async def test_redis_asks_a_few_things() -> None:
    """By the server's own statistics: some dozen commands for a page, each of a few members, and for
    a count as many as there are pairs of workflow and status, none of which reads what it counts."""
    async with single(clock=ManualClock(NOW)) as store:
        await fill(store, 2_000)
        server = await store._session.server()
        key = server.layout.key(0, "idx:workflow")
        # Places in the index alone, older than the others: nobody looks that far.
        members = [
            framed("invoice") + framed("completed") + sortable(number) + b"ghost-%d" % number
            for number in range(98_000)
        ]
        for start in range(0, len(members), 2_000):
            flat = [part for one in members[start : start + 2_000] for part in (b"0", one)]
            await server.commands([(0, (b"ZADD", key, *flat))], timeout=None, writes=True)

        async def called() -> dict[str, int]:
            (told,) = await server.commands(
                [(0, (b"INFO", b"commandstats"))], timeout=None, writes=False
            )
            lines = [line.partition(":") for line in bytes(told).decode().splitlines()]
            return {
                name.removeprefix("cmdstat_"): int(rest.partition(",")[0].removeprefix("calls="))
                for name, _, rest in lines
                if name.startswith("cmdstat_")
            }

        for question in QUESTIONS:
            before = await called()
            assert await ask(store, question) == 20
            after = await called()
            assert sum(after.values()) - sum(before.values()) < 200, question
        for order, question in ORDERED:
            before = await called()
            assert await ask(store, question, order) == 20
            after = await called()
            assert sum(after.values()) - sum(before.values()) < 200, (order, question)
        before = await called()
        number = await count(store, parse("status:completed workflow:invoice"), now=NOW)
        after = await called()
        asked = {name: after[name] - before.get(name, 0) for name in after}
        assert number.number > 98_000
        assert asked["zlexcount"] == len(WORKFLOWS) * len(Status)
        assert sum(asked.values()) < 100
