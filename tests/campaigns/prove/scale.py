"""A million sleeping runs, a million queued tasks, and a million more in turns and under rules: what a claim, a take and a look cost stays flat.

One run and one task are written by the store, and copied in the database until there are enough; a few
hundred runs are due. Then the same calls are made on a small store and on a large one, on SQLite and
PostgreSQL, and what they read is counted: instructions of SQLite's machine, pages of PostgreSQL
(EXPLAIN (ANALYZE, BUFFERS), each call first in a transaction that is rolled back). That does not depend
on the machine or on what else runs on it, so it is judged; milliseconds are shown beside it. Then a
worker is open for a while that finds nothing to do, and its statements are counted.

    ./dev prove scale [--large 1000000] [--small 10000] [--only sqlite] [--seconds 10]

A cost on the large store above twice that on the small one (an index is a level or two deeper), or an
idle worker that asks more often, is a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg

import outlast
from outlast.model import Claim, Commit, Run, Status, Task
from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.ports import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.connection import OwnConnection
from outlast.stores.sqlite import SqliteStore
from outlast.stores.sqlite.connection import Connection, Cursor, connect
from tools.serving.postgres import Cluster

STATE = Path(__file__).parents[3] / ".cache" / "prove"
PARTS = ("sqlite", "postgres")
DUE = 200
CALLS = 10
AT_ONCE = 10
FLAT = 2.0
KEYS = 1000
RULES = QueuePolicy(
    queue="shared", concurrency=100_000, key_concurrency=50, rate=Rate(100_000, 60.0), ageing=60.0
)
SLACK = 20
"""Pages, or a hundred times as many instructions, that make no difference."""

LONG = 400 * 24 * 3600 * 1_000_000


@outlast.workflow
async def sleeper() -> None:
    """What sleeps."""
    await outlast.sleep(days=400)


@outlast.step(queue="elsewhere")
async def nothing() -> None:
    """What nobody asks for."""


class Cost(NamedTuple):
    """What one call took: of the database, and in milliseconds, both in the middle."""

    reads: float
    milliseconds: float


class Found(NamedTuple):
    """Costs by call, and statements a second of a worker that has nothing to do."""

    costs: dict[str, Cost]
    idle: float


class Meter:
    """Counts what a database does for us."""

    def __init__(self) -> None:
        self.reads = 0
        self.statements = 0
        self.explains = False


meter = Meter()


def main(argv: list[str]) -> int:
    """Fill, measure, compare; 1 if something grows with the number of rows."""
    parser = argparse.ArgumentParser(prog="./dev prove scale")
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to be idle")
    parser.add_argument("--only", choices=PARTS, action="append", help="leave the other out")
    options = parser.parse_args(argv)
    STATE.mkdir(parents=True, exist_ok=True)  # not /tmp, which may be memory
    failures: list[str] = []
    for part in options.only or PARTS:
        found = {}
        for count in (options.small, options.large):
            with tempfile.TemporaryDirectory(dir=STATE) as name:
                found[count] = _measure(part, Path(name), count, options.seconds)
        failures += _compare(part, found[options.small], found[options.large], options)
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


def _compare(part: str, small: Found, large: Found, options: argparse.Namespace) -> list[str]:
    unit, slack = ("pages", SLACK) if part == "postgres" else ("instructions", 100 * SLACK)
    failures = []
    for call, cost in large.costs.items():
        before = small.costs[call]
        print(
            f"{part:9} {call:34} {before.reads:9,.0f} → {cost.reads:9,.0f} {unit:12} "
            f"{before.milliseconds:8.2f} → {cost.milliseconds:8.2f} ms"
        )
        if cost.reads > FLAT * before.reads + slack:
            failures.append(f"{part}: {call} reads {cost.reads:,.0f} {unit}")
    print(
        f"{part:9} {'an idle worker':34} {small.idle:9.2f} → {large.idle:9.2f} statements/s "
        f"({options.small:,} → {options.large:,} runs, and as many tasks)"
    )
    if large.idle > FLAT * small.idle + 1:
        failures.append(f"{part}: an idle worker makes {large.idle:.1f} statements a second")
    return failures


def _measure(part: str, folder: Path, count: int, seconds: float) -> Found:
    if part == "sqlite":
        file = folder / "store.db"
        asyncio.run(_template(SqliteStore(file)))
        begun = time.perf_counter()
        _fill_sqlite(file, count)
        print(
            f"{part}: {count:,} runs and tasks in {time.perf_counter() - begun:.0f} s", flush=True
        )
        store: Store = SqliteStore(file, connect=_counted)
        return asyncio.run(_calls(store, seconds))
    folder.chmod(0o755)  # PostgreSQL refuses to run as root, and has to reach its own folder
    cluster = Cluster(folder)
    try:
        asyncio.run(_template(PostgresStore(cluster.url)))
        begun = time.perf_counter()
        asyncio.run(_fill_postgres(cluster.url, count))
        print(
            f"{part}: {count:,} runs and tasks in {time.perf_counter() - begun:.0f} s", flush=True
        )
        return asyncio.run(_calls(PostgresStore(cluster.url), seconds))
    finally:
        cluster.stop()


# -- filling ------------------------------------------------------------------------------------


async def _template(store: Store) -> None:
    """One of each, as the store writes it."""
    async with store:
        run = Run(id="r", workflow=sleeper.name, status=Status.WAITING)
        await store.commit([Commit(run_id="r", create=run)])
        async with store.queue() as queue:
            await queue.enqueue("jobs", [Task(id="t", name="tiny")])
            await queue.set_policy(RULES, by="prove")


def _fill_sqlite(file: Path, count: int) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        now = int(time.time() * 1_000_000)
        series = (
            f"WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count})"
        )
        for table, own in _columns(now, count):
            names = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
            if names:
                chosen = ", ".join(own.get(name, f"t.{name}") for name in names)
                db.execute(
                    f"{series} INSERT INTO {table} ({', '.join(names)}) "
                    f"SELECT {chosen} FROM n CROSS JOIN {table} AS t WHERE t.key = 1"
                )
        db.execute("COMMIT")
        db.execute("ANALYZE")


async def _fill_postgres(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        now = int(time.time() * 1_000_000)
        for table, own in _columns(now, count):
            rows = await connection.fetch(
                "SELECT column_name FROM information_schema.columns "
                "WHERE table_schema = 'outlast' AND table_name = $1 ORDER BY ordinal_position",
                table,
            )
            names = [row[0] for row in rows]
            chosen = ", ".join(own.get(name, f"t.{name}") for name in names)
            await connection.execute(
                f"INSERT INTO outlast.{table} ({', '.join(names)}) "
                f"SELECT {chosen} FROM generate_series(1, {count}) AS n "
                f"CROSS JOIN (SELECT * FROM outlast.{table} LIMIT 1) AS t"
            )
            await connection.execute(f"ANALYZE outlast.{table}")
    finally:
        await connection.close()


def _columns(now: int, count: int) -> list[tuple[str, dict[str, str]]]:
    """What differs from row to row: a few hundred runs are due, the others sleep for long; half of the
    tasks are of keys that take turns."""
    due = f"CASE WHEN n <= {DUE} THEN {now} - n ELSE {now} + {LONG} + n END"
    key = {"key": "t.key + n"}
    runs = {**key, "id": "'r-' || n", "uid": "'u-' || n", "runnable_at": due}
    plain = {"id": "'t-' || n", "ready_at": f"{now} - n", "place": "decode(md5(n::text), 'hex')"}
    lined = {
        "key": f"t.key + n + {count}",
        "id": "'s-' || n",
        "queue": "'shared'",
        "line": f"'k' || (n % {KEYS})",
        "place": "decode(md5('s' || n), 'hex')",
    }
    return [
        ("runs", runs),
        ("run_details", key),
        ("tasks", {**key, **plain}),
        ("tasks", {**plain, **lined}),
    ]


# -- calling ------------------------------------------------------------------------------------


async def _calls(store: Store, seconds: float) -> Found:
    async with store:
        queue = store.queue()
        costs = {}

        async def claim() -> None:
            claimed = await store.claim_runs("w", 30, limit=AT_ONCE, workflows=[sleeper.name])
            assert len(claimed) == AT_ONCE, "not enough are due"
            held.extend(one.claim for one in claimed)

        async def take() -> None:
            taken = await queue.take_many(["jobs"], owner="w", visibility=30, limit=AT_ONCE)
            assert len(taken) == AT_ONCE, "the queue is empty"
            held.extend(one.claim for one in taken)

        async def take_in_turns() -> None:
            taken = await queue.take_many(["shared"], owner="w", visibility=30, limit=AT_ONCE)
            assert len({one.task.key for one in taken}) == AT_ONCE, "they do not take turns"

        async def see() -> None:
            stats = await queue.stats("shared", counted=5)
            assert (stats.ready, "ready" in stats.at_least) == (5, True)

        async def look() -> None:
            assert await store.claim_runs("w", 30, workflows=["never-heard-of"]) == []

        async def sweep() -> None:
            assert await store.next_runnable_at() is not None

        async def look_for_tasks() -> None:
            assert await queue.take_many(["elsewhere"], owner="w", visibility=30, limit=9) == []

        held: list[Claim] = []

        async def renew() -> None:
            assert None not in await store.renew(held[:AT_ONCE], 30)

        calls: dict[str, Callable[[], Awaitable[None]]] = {
            f"claim {AT_ONCE} runs": claim,
            f"take {AT_ONCE} tasks": take,
            f"take {AT_ONCE} tasks in turns": take_in_turns,
            "see how a queue stands": see,
            f"renew {AT_ONCE} leases": renew,
            "look for runs, find none": look,
            "look for tasks, find none": look_for_tasks,
            "when is the next run due": sweep,
        }
        await claim()
        await take()
        async with _explaining():
            for name, call in calls.items():
                costs[name] = await _cost(call)
        await store.release(held)
        async with outlast.App(store, workflows=[_other], steps=[nothing]):
            await asyncio.sleep(2)  # it has looked for the first time
            meter.statements = 0
            begun = time.perf_counter()
            await asyncio.sleep(seconds)
            idle = meter.statements / (time.perf_counter() - begun)
    return Found(costs, idle)


@outlast.workflow
async def _other() -> None:
    """What never was started."""


async def _cost(call: Callable[[], Awaitable[None]]) -> Cost:
    reads, times = [], []
    for _ in range(CALLS):
        meter.reads = 0
        begun = time.perf_counter()
        await call()
        times.append((time.perf_counter() - begun) * 1000)
        reads.append(meter.reads)
    return Cost(statistics.median(reads), statistics.median(times))


@asynccontextmanager
async def _explaining() -> AsyncIterator[None]:
    meter.explains = True
    yield
    meter.explains = False


# -- counting: PostgreSQL -------------------------------------------------------------------------

_fetch = OwnConnection.fetch


async def _explained(self: Any, query: str, *args: Any, **options: Any) -> Any:
    meter.statements += 1
    if meter.explains:
        transaction = self.transaction()
        await transaction.start()
        try:
            explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}"
            [(told,)] = await _fetch(self, explain, *args, **options)
        finally:
            await transaction.rollback()
        plan = json.loads(told)[0]["Plan"]
        meter.reads += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    return await _fetch(self, query, *args, **options)


OwnConnection.fetch = _explained


# -- counting: SQLite -----------------------------------------------------------------------------


def _counted(path: str) -> Connection:
    connection = connect(path)
    assert isinstance(connection, sqlite3.Connection)

    def count() -> int:
        meter.reads += 1
        return 0

    connection.set_progress_handler(count, 1)
    return _Counted(connection)


class _Counted:
    def __init__(self, inner: Connection) -> None:
        self._inner = inner

    def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
        meter.statements += 1
        return self._inner.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> object:
        meter.statements += 1
        return self._inner.executemany(sql, parameters)

    def close(self) -> None:
        self._inner.close()
