"""Contents of a run besides its events: timers, entries, activities, a snapshot, facts, keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from outlast.errors import Undecodable
from outlast.model.commit import Commit
from outlast.model.ids import root_of
from outlast.model.run_contents import Activity, Entry, Fact, Snapshot, Timer
from outlast.model.times import EPOCH, from_micros, to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.rows import (
    STATUS,
    RunRow,
    micros_or_none,
    moment,
    payload,
    raw,
)
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.tasks import (
    drop_tasks,
    finish_tasks,
    insert_dead_tasks,
    insert_tasks,
)
from outlast.stores.sqlite.unit_of_work import UnitOfWork

INSERT_TIMERS = query("insert_timers")
FIND_UNFIRED_TIMER = query("find_unfired_timer")
FIRE_TIMER = query("fire_timer")
LOAD_TIMERS = query("load_timers")
FIND_DUE_TIMERS = query("find_due_timers")
INSERT_ENTRIES = query("insert_entries")
LOAD_ENTRIES = query("load_entries")
SAVE_ACTIVITIES = query("save_activities")
LOAD_ACTIVITIES = query("load_activities")
FIND_ACTIVITY = query("find_activity")
SAVE_SNAPSHOT = query("save_snapshot")
FIND_SNAPSHOT = query("find_snapshot")
HAS_SNAPSHOT = query("has_snapshot")
DROP_SNAPSHOT = query("drop_snapshot")
FIND_SNAPSHOT_IDS = query("find_snapshot_ids")
SAVE_FACTS = query("save_facts")
FIND_FACT = query("find_fact")
HAS_FACT = query("has_fact")
DROP_FACT = query("drop_fact")
RECALL_KEY = query("recall_key")
REMEMBER_KEY = query("remember_key")


class SqliteRunDetails(SessionStore):
    """Contents of runs besides their events."""

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        return [_to_timer(row) for row in await self._load(LOAD_TIMERS, run_id, timeout)]

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        moment = to_micros(now or self.clock.now())
        found = await self._session.read_page(
            lambda db, limit: db.execute(FIND_DUE_TIMERS, (moment, limit)).fetchall(),
            limit=limit,
            timeout=timeout,
        )
        return [_to_timer(row) for row in found]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        return [_to_entry(run_id, row) for row in await self._load(LOAD_ENTRIES, run_id, timeout)]

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        return [_to_activity(row) for row in await self._load(LOAD_ACTIVITIES, run_id, timeout)]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        rows = await self._session.read(
            lambda db: db.execute(FIND_ACTIVITY, (activity_id,)).fetchall(), timeout=timeout
        )
        return _to_activity(rows[0]) if rows else None

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        envelope = await self._value(FIND_SNAPSHOT, (run_id,), timeout)
        return None if envelope is None else Snapshot.unpack(envelope)

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        return await self._drop(HAS_SNAPSHOT, DROP_SNAPSHOT, (run_id,), timeout)

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        found = await self._session.read_page(
            lambda db, limit: db.execute(FIND_SNAPSHOT_IDS, (after, limit)).fetchall(),
            limit=limit,
            timeout=timeout,
        )
        return [id for (id,) in found]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        data = await self._value(FIND_FACT, (root, hash), timeout)
        return None if data is None else Fact(hash, data, root)

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        await self._session.write(
            lambda db: db.execute(SAVE_FACTS, ("", fact.hash, fact.data)), timeout=timeout
        )

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        return await self._drop(HAS_FACT, DROP_FACT, ("", hash), timeout)

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        def work(db: Connection) -> str | None:
            bound: str | None = scalar(db, RECALL_KEY, (scope, key))
            if bound is None:
                db.execute(REMEMBER_KEY, (scope, key, value, run_id))
            return bound

        return await self._session.write(work, timeout=timeout)

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        value: str | None = await self._value(RECALL_KEY, (scope, key), timeout)
        return value

    async def _load(self, sql: str, run_id: str, timeout: float | None) -> list[tuple[Any, ...]]:
        return await self._session.read(
            lambda db: db.execute(sql, (run_id,)).fetchall(), timeout=timeout, small=False
        )

    async def _value(self, sql: str, parameters: tuple[str, ...], timeout: float | None) -> Any:
        return await self._session.read(lambda db: scalar(db, sql, parameters), timeout=timeout)

    async def _drop(
        self, find: str, drop: str, parameters: tuple[str, ...], timeout: float | None
    ) -> bool:
        def work(db: Connection) -> bool:
            was_there = scalar(db, find, parameters) is not None
            if was_there:
                db.execute(drop, parameters)
            return was_there

        return await self._session.write(work, timeout=timeout)


def write_contents(unit: UnitOfWork, row: RunRow, commit: Commit) -> tuple[str, ...]:
    """Write the contents of a commit besides events and record. Returns the timers that it fired."""
    connection = unit.connection
    if commit.finishes:
        finish_tasks(connection, commit.finishes)
    if commit.drops:
        drop_tasks(connection, [(commit.run_id, id) for id in commit.drops])
    if commit.tasks:
        stamped = [msgspec.structs.replace(task, uid=row.uid) for task in commit.tasks]
        insert_tasks(connection, stamped, now=unit.now, earliest=unit.now)
    if commit.dead:
        insert_dead_tasks(connection, commit.dead, uid=row.uid, now=unit.now)
    if commit.timers:
        timers = [(row.key, timer.id, to_micros(timer.fire_at)) for timer in commit.timers]
        connection.executemany(INSERT_TIMERS, timers)
    fired = _fire(connection, row.key, commit.fired) if commit.fired else ()
    if commit.facts:
        root = root_of(commit.run_id)
        connection.executemany(SAVE_FACTS, [(root, fact.hash, fact.data) for fact in commit.facts])
    if commit.entries:
        rows = [_entry_row(row.key, entry, unit.now) for entry in commit.entries]
        connection.executemany(INSERT_ENTRIES, rows)
    if commit.activities:
        rows = [_activity_row(row.key, activity) for activity in commit.activities]
        connection.executemany(SAVE_ACTIVITIES, rows)
    if commit.snapshot is not None:
        _save_snapshot(unit, row, commit.snapshot)
    return fired


# -- timers ---------------------------------------------------------------------------------------


def _fire(connection: Connection, key: int, ids: tuple[str, ...]) -> tuple[str, ...]:
    fired = []
    for id in ids:
        if connection.execute(FIND_UNFIRED_TIMER, (key, id)).fetchall():
            connection.execute(FIRE_TIMER, (key, id))
            fired.append(id)
    return tuple(fired)


def _to_timer(row: tuple[Any, ...]) -> Timer:
    run_id, id, fire_at, fired = row
    return Timer(run_id=run_id, id=id, fire_at=from_micros(fire_at), fired=bool(fired))


# -- entries and activities -----------------------------------------------------------------------


def _entry_row(key: int, entry: Entry, now: int) -> tuple[Any, ...]:
    return (
        key,
        now if entry.timestamp == EPOCH else to_micros(entry.timestamp),
        entry.id,
        entry.step_id,
        entry.step_type,
        entry.action,
        entry.duration_ms,
        entry.error,
        payload(entry.input),
        payload(entry.output),
    )


def _to_entry(run_id: str, row: tuple[Any, ...]) -> Entry:
    _, timestamp, id, step_id, step_type, action, duration_ms, error, input, output = row
    return Entry(
        run_id=run_id,
        timestamp=from_micros(timestamp),
        id=id,
        step_id=step_id,
        step_type=step_type,
        action=action,
        duration_ms=duration_ms,
        error=error,
        input=raw(input),
        output=raw(output),
    )


def _activity_row(key: int, activity: Activity) -> tuple[Any, ...]:
    return (
        activity.id,
        key,
        activity.name,
        activity.status.value,
        activity.attempt,
        micros_or_none(activity.started_at),
        micros_or_none(activity.ended_at),
        activity.error,
        payload(activity.input),
        payload(activity.output),
    )


def _to_activity(row: tuple[Any, ...]) -> Activity:
    id, run_id, name, status, attempt, started_at, ended_at, error, input, output = row
    if status not in STATUS:
        raise Undecodable(f"activity {id!r} has the unknown status {status!r}")
    return Activity(
        id=id,
        run_id=run_id,
        name=name,
        status=STATUS[status],
        attempt=attempt,
        started_at=moment(started_at),
        ended_at=moment(ended_at),
        error=error,
        input=raw(input),
        output=raw(output),
    )


# -- snapshots ------------------------------------------------------------------------------------


def _save_snapshot(unit: UnitOfWork, row: RunRow, snapshot: Snapshot) -> None:
    if snapshot.created_at == EPOCH:
        snapshot = msgspec.structs.replace(snapshot, created_at=from_micros(unit.now))
    unit.connection.execute(SAVE_SNAPSHOT, (row.key, row.id, snapshot.pack()))
