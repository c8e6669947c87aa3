"""No call reads whole tables, however new they are and whatever they hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import asyncpg
import msgspec
import pytest

from outlast.model import Change, Commit, Event, Item, Run, RunQuery, Send, Status, Task, Timer
from outlast.model.ids import new_id
from outlast.model.query import Order, Page
from outlast.model.run import Attribute
from outlast.model.times import NOW
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.postgres.places import direct, rows_read

pytestmark = pytest.mark.server

RUNS = 500
COUNT = """
    SELECT relname, seq_scan FROM pg_stat_user_tables
    WHERE schemaname = $1 AND seq_scan > 0 AND relname NOT IN ('migrations', 'installed_functions')
"""


def a_run(n: int) -> Commit:
    """A run with something of everything."""
    id = f"r{n:04}"
    return Commit(
        run_id=id,
        create=Run(
            id=id,
            workflow=f"w{n % 7}",
            runnable_at=NOW if n % 2 else None,
            attributes={"tenant": f"t{n % 10}"},
            status=list(Status)[n % 5],
        ),
        events=(Event(type="workflow.started", run_id=id),),
        tasks=(Task(run_id=id, queue=f"q{n % 3}", priority=n % 4),),
        timers=(Timer(run_id=id, id="t", fire_at=NOW),),
    )


async def begin(store: PostgresStore) -> None:
    """A run that nobody has heard of."""
    id = new_id()
    await store.commit([Commit(run_id=id, create=Run(id=id, workflow="w1"))])


async def commit_plain(store: PostgresStore) -> None:
    """Appends to runs that are there, and what travels with them."""
    event = Event(type="step.completed", run_id="r0001")
    item = Item(kind="signal")
    await store.commit(
        [
            Commit(run_id="r0001", events=(event,), change=Change(current_step="s")),
            Commit(run_id="r0002", sends=(Send(run_id="r0011", item=item),), drops=("nothing",)),
            Commit(run_id="r0004", consumes=(1,), fired=("t",), change=Change(runnable_at=None)),
        ]
    )
    await store.append("r0006", [Event(type="step.completed", run_id="r0006")])


async def end(store: PostgresStore) -> None:
    """A run ends, with all that it must not keep."""
    await store.commit([Commit(run_id="r0003", change=Change(status=Status.COMPLETED))])


async def send(store: PostgresStore) -> None:
    """An item arrives."""
    await store.send([Send(run_id="r0005", item=Item(kind="signal"))])


async def claim(store: PostgresStore) -> None:
    """Claims are taken, renewed, given back, by time and by name."""
    claimed = await store.claim_runs("w", 30, limit=3)
    claimed += await store.claim_runs("w", 30, limit=3, workflows=["w1", "w2"])
    claimed += await store.claim_runs("w", 30, run_ids=["r0008"])
    claims = [one.claim for one in claimed]
    assert len(await store.renew(claims, 30)) == 7
    await store.next_runnable_at()
    await store.release(claims)


async def find(store: PostgresStore) -> None:
    """Searches by each filter."""
    for query in (
        RunQuery(limit=5),
        RunQuery(workflow="w1", limit=5),
        RunQuery(status=frozenset({Status.RUNNING}), limit=5),
        RunQuery(parent="r0001", limit=5),
        RunQuery(attributes={"tenant": "t1"}, limit=5),
    ):
        await store.find(query)


async def read(store: PostgresStore) -> None:
    """What one run owns."""
    await store.get("r0001")
    await store.history("r0001")
    await store.histories(["r0001", "r0002"])
    await store.inbox("r0001")
    await store.timers("r0001")
    await store.due_timers(limit=3)
    await store.entries("r0001")
    await store.activities("r0001")
    await store.find_snapshot("r0001")


async def work(store: PostgresStore) -> None:
    """Tasks are found, taken, finished."""
    await store.find_available_tasks(limit=3)
    await store.find_available_tasks(queue="q1", limit=3)
    queue = store.queue()
    delivery = await queue.dequeue("q1")
    assert delivery is not None
    await queue.extend(delivery.claim, 30)
    await queue.nack(delivery.claim, requeue=False)
    await queue.dead("q1")
    await queue.redrive("q1")
    delivery = await queue.dequeue("q2")
    assert delivery is not None
    await queue.ack(delivery.claim)
    assert await store.claim_task("r0007", "nothing", "w") is None


async def delete(store: PostgresStore) -> None:
    """A run goes with everything."""
    assert await store.delete("r0009")
    await store.expire(store.clock.now() - timedelta(days=1), limit=5)


CALLS = [commit_plain, end, send, claim, find, read, work, delete]


@pytest.mark.proves("I31")
async def test_no_call_reads_a_whole_table(schema: str) -> None:
    """Counted by the server, on tables that have never been analysed."""
    pool = await asyncpg.create_pool(direct(), min_size=1, max_size=1)
    async with pool, PostgresStore(pool, schema=schema, clock=ManualClock()) as store:
        await store.commit([a_run(n) for n in range(RUNS)])

        async def scanned() -> dict[str, int]:
            async with pool.acquire() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
                rows = await connection.fetch(COUNT, schema)
                return {row["relname"]: row["seq_scan"] for row in rows}

        found = {}
        for call in CALLS:
            before = await scanned()
            await call(store)
            after = await scanned()
            found[name_of(call)] = {
                table: count for table, count in after.items() if count != before.get(table, 0)
            }
        assert {name: tables for name, tables in found.items() if tables} == {}


READ = """
    SELECT coalesce(sum(s.idx_tup_read), 0)::bigint AS tuples
    FROM pg_stat_user_indexes AS s WHERE s.schemaname = $1
"""
HOT = [begin, commit_plain, send, claim, work]
DEEP = 5000


@pytest.mark.proves("I31")
async def test_a_deep_store_costs_what_a_shallow_one_does(schema: str) -> None:
    """Plans that were made for a few rows still find what is asked for when there are many, most of
    them not due for long: rows are counted by the server, nothing is analysed in between."""
    pool = await asyncpg.create_pool(direct(), min_size=1, max_size=1)
    async with pool, PostgresStore(pool, schema=schema, clock=ManualClock()) as store:
        later = store.clock.now() + timedelta(days=99)

        async def tuples() -> int:
            async with pool.acquire() as connection:
                await connection.execute("SELECT pg_stat_force_next_flush()")
                return int(await connection.fetchval(READ, schema))

        async def costs() -> dict[str, int]:
            found = {}
            for call in HOT:
                before = await tuples()
                await call(store)
                found[name_of(call)] = await tuples() - before
            return found

        await store.commit([a_run(n) for n in range(60)])
        for table in ("runs", "tasks"):
            await pool.execute(f'ALTER TABLE "{schema}".{table} SET (autovacuum_enabled = off)')
        shallow: dict[str, int] = {}
        for _ in range(8):  # so that every plan is the one that stays
            shallow = await costs()
        await store.commit(
            [
                Commit(
                    run_id=f"deep-{n}",
                    create=Run(id=f"deep-{n}", workflow=f"w{n % 7}", runnable_at=later),
                    events=(Event(type="workflow.started", run_id=f"deep-{n}"),),
                )
                for n in range(DEEP)
            ]
        )
        for name in ("q0", "q1", "q2"):
            delayed = [Task(id=f"{n}", priority=n % 4, run_at=later) for n in range(DEEP)]
            await store.queue().enqueue(name, delayed)
        deep = await costs()
        assert {name: cost for name, cost in deep.items() if cost > shallow[name] + 300} == {}


PAGE = 50
MANY = 5000
SHELF, FAMILY = "w1", "m00000"
TENANT: dict[str, Attribute] = {"tenant": "t1"}
PAGES = [
    RunQuery(limit=PAGE),
    RunQuery(limit=PAGE, workflow=SHELF),
    RunQuery(limit=PAGE, status=frozenset({Status.COMPLETED})),
    RunQuery(limit=PAGE, workflow=SHELF, status=frozenset({Status.COMPLETED})),
    RunQuery(limit=PAGE, parent=FAMILY),
    RunQuery(limit=PAGE, parent=FAMILY, workflow=SHELF),
    RunQuery(limit=PAGE, attributes=TENANT),
    RunQuery(limit=PAGE, attributes=TENANT, workflow=SHELF),
    RunQuery(limit=PAGE, attributes={**TENANT, "all": True}),
    *(RunQuery(limit=PAGE, order=order) for order in Order),
    *(RunQuery(limit=PAGE, order=order, workflow=SHELF) for order in Order),
]


@pytest.mark.proves("I31")
async def test_a_page_reads_a_page_though_nothing_is_analysed(schema: str) -> None:
    """Five thousand runs in tables of which the server knows nothing, made a hundred at a time: a page
    of fifty by each filter and order reads a few hundred rows, and so does the page after it."""
    async with PostgresStore(direct(), schema=schema, notify=False, clock=ManualClock()) as store:
        await store.find(RunQuery(limit=PAGE))  # planned for empty tables
        async with store.database.acquire() as connection:
            for table in ("runs", "run_details", "attributes"):
                await connection.execute(
                    f'ALTER TABLE "{schema}".{table} SET (autovacuum_enabled = off)'
                )
        for first in range(0, MANY, 1000):
            runs = [one_of_many(number) for number in range(first, first + 1000)]
            await store.commit([Commit(run_id=run.id, create=run) for run in runs])
        for query in PAGES:
            pages: list[Page[Run]] = []

            async def find(query: RunQuery, pages: list[Page[Run]] = pages) -> None:
                pages.append(await store.find(query))

            assert await rows_read(store, partial(find, query)) < 12 * PAGE, query
            after = msgspec.structs.replace(query, after=pages[0].next)
            assert await rows_read(store, partial(find, after)) < 12 * PAGE, after
            first_ids, next_ids = ({run.id for run in page.items} for page in pages)
            assert len(first_ids) == len(next_ids) == len(first_ids ^ next_ids) / 2 == PAGE


def one_of_many(number: int) -> Run:
    """One of many runs that have ended, of a large family, a tenth of them with an attribute."""
    return Run(
        id=f"m{number:05}",
        workflow=f"w{number % 3}",
        parent=FAMILY if number % 2 else None,
        status=Status.COMPLETED,
        attributes={"tenant": f"t{number % 10}", "all": True},
        created_at=NOW - timedelta(seconds=number // 100),
    )


def name_of(call: Callable[[PostgresStore], Awaitable[None]]) -> str:
    """The name of a call."""
    return str(getattr(call, "__name__", call))
