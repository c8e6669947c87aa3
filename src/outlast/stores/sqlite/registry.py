"""What concerns a store as a whole: how many runs there are, which workers live, and what a move to
another store has to know."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from outlast.model.claim import check_ttl
from outlast.model.ids import check_id, check_name
from outlast.model.json import from_json, to_json
from outlast.model.run import Status
from outlast.model.run_contents import BoundKey, HeldTask, RunContents
from outlast.model.task import DeadTask
from outlast.model.times import from_micros, to_micros
from outlast.model.validation import check_after, check_worker
from outlast.model.worker import REMEMBERED, Worker
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.optional import SqliteOptional
from outlast.stores.sqlite.rows import STATUS, moment
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.tasks import DeadTaskRow, TaskRow, to_task

COUNT_RUNS = query("count_runs")
PUT_WORKER = query("put_worker")
FORGET_WORKERS = query("forget_workers")
FIND_WORKER = query("find_worker")
DELETE_WORKER = query("delete_worker")
LOAD_WORKERS = query("load_workers")
LOAD_RECEIPTS = query("load_receipts")
LOAD_TASKS_OF_RUN = query("load_tasks_of_run")
LOAD_DEAD_TASKS_OF_RUN = query("load_dead_tasks_of_run")
LOAD_KEYS_OF_RUN = query("load_keys_of_run")
LOAD_FACTS_OF_ROOT = query("load_facts_of_root")
SKIP_TOKENS = query("skip_tokens")


class SqliteRegistry(SqliteOptional):
    """Counts, workers and moves."""

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        found = await self._session.read(
            lambda db: db.execute(COUNT_RUNS).fetchall(), timeout=timeout, small=False
        )
        return {(workflow, STATUS[status]): number for workflow, status, number in found}

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        check_worker(worker)
        check_ttl(ttl)
        await self._session.write(
            lambda db: _heartbeat(db, worker, ttl, self.clock.now()), timeout=timeout
        )

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        check_name(owner, "owner")
        return await self._session.write(lambda db: _leave(db, owner), timeout=timeout)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        return await self._session.read(_load_workers, timeout=timeout, small=False)

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        check_id(run_id, child=True)
        return await self._session.read(
            lambda db: _load_contents(db, run_id), timeout=timeout, small=False
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        check_after(above)
        await self._session.write(lambda db: _skip_tokens(db, above), timeout=timeout)


def _heartbeat(connection: Connection, worker: Worker, ttl: float, now: datetime) -> None:
    """Put a worker on the list, or its last word in place of the one before."""
    values = {
        "owner": worker.owner,
        "now": to_micros(now),
        "until": to_micros(now + timedelta(seconds=ttl)),
        "data": to_json(worker),
    }
    connection.execute(PUT_WORKER, values)
    connection.execute(FORGET_WORKERS, (to_micros(now - REMEMBERED),))


def _leave(connection: Connection, owner: str) -> bool:
    """Take a worker off the list; whether it was there."""
    was_there = scalar(connection, FIND_WORKER, (owner,)) is not None
    connection.execute(DELETE_WORKER, (owner,))
    return was_there


def _load_workers(connection: Connection) -> list[Worker]:
    """All that are on the list."""
    return [
        msgspec.structs.replace(
            from_json(data, Worker, where="the word of a worker"),
            started_at=from_micros(started_at),
            seen_at=from_micros(seen_at),
            until=from_micros(until),
        )
        for data, started_at, seen_at, until in connection.execute(LOAD_WORKERS).fetchall()
    ]


def _load_contents(connection: Connection, run_id: str) -> RunContents:
    """What a run owns that no other method reads."""

    def rows(sql: str) -> list[tuple[object, ...]]:
        return connection.execute(sql, (run_id,)).fetchall()

    dead = [DeadTaskRow(*row) for row in rows(LOAD_DEAD_TASKS_OF_RUN)]  # type: ignore[arg-type]
    living = [TaskRow(*row) for row in rows(LOAD_TASKS_OF_RUN)]  # type: ignore[arg-type]
    return RunContents(
        receipts=tuple(str(id) for (id,) in rows(LOAD_RECEIPTS)),
        tasks=tuple(map(to_task, living)),
        holdings=tuple(
            HeldTask(row.id, row.queue, row.owner, moment(row.claimed_until))
            for row in living
            if row.owner is not None
        ),
        dead=tuple(DeadTask(to_task(row), row.reason, from_micros(row.died_at)) for row in dead),
        keys=tuple(BoundKey(*map(str, row)) for row in rows(LOAD_KEYS_OF_RUN)),
        facts=tuple(str(hash) for (hash,) in rows(LOAD_FACTS_OF_ROOT)),
    )


def _skip_tokens(connection: Connection, above: int) -> None:
    """Count on from there, if the counter is behind."""
    connection.execute(SKIP_TOKENS, (above, above))
