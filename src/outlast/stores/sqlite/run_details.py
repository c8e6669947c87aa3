"""Contents of a run besides its events: timers, entries, activities, a snapshot, facts, keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from outlast.errors import Undecodable
from outlast.model.commit import Commit
from outlast.model.ids import root_of
from outlast.model.run_contents import Activity, Entry, Fact, Timer
from outlast.model.snapshot import Snapshot
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
FIND_SNAPSHOT_KEY = query("find_snapshot_key")
DROP_SNAPSHOT = query("drop_snapshot")
FIND_SNAPSHOT_IDS = query("find_snapshot_ids")
SAVE_FACTS = query("save_facts")
FIND_FACT = query("find_fact")
HAS_FACT = query("has_fact")
DROP_FACT = query("drop_fact")
RECALL_KEY = query("recall_key")
REMEMBER_KEY = query("remember_key")


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


def load_timers(connection: Connection, run_id: str) -> list[Timer]:
    """All timers of a run."""
    return [_to_timer(row) for row in connection.execute(LOAD_TIMERS, (run_id,)).fetchall()]


def find_due_timers(connection: Connection, now: datetime, limit: int) -> list[Timer]:
    """Timers that are due and have not fired."""
    rows = connection.execute(FIND_DUE_TIMERS, (to_micros(now), limit)).fetchall()
    return [_to_timer(row) for row in rows]


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


def load_entries(connection: Connection, run_id: str) -> list[Entry]:
    """The audit lines of a run."""
    return [
        Entry(
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
        for _, timestamp, id, step_id, step_type, action, duration_ms, error, input, output in (
            connection.execute(LOAD_ENTRIES, (run_id,)).fetchall()
        )
    ]


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


def load_activities(connection: Connection, run_id: str) -> list[Activity]:
    """The activities of a run."""
    return [_to_activity(row) for row in connection.execute(LOAD_ACTIVITIES, (run_id,)).fetchall()]


def find_activity(connection: Connection, activity_id: str) -> Activity | None:
    """One activity."""
    rows = connection.execute(FIND_ACTIVITY, (activity_id,)).fetchall()
    return _to_activity(rows[0]) if rows else None


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


def find_snapshot(connection: Connection, run_id: str) -> Snapshot | None:
    """The last snapshot of a run."""
    envelope = scalar(connection, FIND_SNAPSHOT, (run_id,))
    return None if envelope is None else Snapshot.unpack(envelope)


def drop_snapshot(connection: Connection, run_id: str) -> bool:
    """Remove the snapshot of a run; whether there was one."""
    key = scalar(connection, FIND_SNAPSHOT_KEY, (run_id,))
    if key is None:
        return False
    connection.execute(DROP_SNAPSHOT, (key,))
    return True


def find_snapshot_ids(connection: Connection, after: str, limit: int) -> list[str]:
    """The runs that have a snapshot."""
    return [id for (id,) in connection.execute(FIND_SNAPSHOT_IDS, (after, limit)).fetchall()]


# -- facts and keys -------------------------------------------------------------------------------


def find_fact(connection: Connection, hash: str, root: str) -> Fact | None:
    """A fact of a tree or of the free namespace."""
    data = scalar(connection, FIND_FACT, (root, hash))
    return None if data is None else Fact(hash, data, root)


def put_fact(connection: Connection, fact: Fact) -> None:
    """Store a fact in the free namespace."""
    connection.execute(SAVE_FACTS, ("", fact.hash, fact.data))


def drop_fact(connection: Connection, hash: str) -> bool:
    """Remove a fact from the free namespace; whether it was there."""
    if scalar(connection, HAS_FACT, ("", hash)) is None:
        return False
    connection.execute(DROP_FACT, ("", hash))
    return True


def recall(connection: Connection, scope: str, key: str) -> str | None:
    """The value that a key is bound to."""
    value: str | None = scalar(connection, RECALL_KEY, (scope, key))
    return value


def remember(
    connection: Connection, scope: str, key: str, value: str, run_id: str | None
) -> str | None:
    """Bind a key unless it is bound."""
    bound = recall(connection, scope, key)
    if bound is None:
        connection.execute(REMEMBER_KEY, (scope, key, value, run_id))
    return bound
