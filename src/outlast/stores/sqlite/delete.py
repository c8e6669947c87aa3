"""The end of a run, and its deletion with everything that it owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import Send
from outlast.model.times import to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.database import UNKNOWN_ROWS
from outlast.stores.sqlite.inbox import deliver
from outlast.stores.sqlite.rows import RunRow, text
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.unit_of_work import UnitOfWork, add_counts

FIND_TREE = query("find_tree")
FIND_OPEN = query("find_open")
FIND_ENDED = query("find_ended")
FIND_UID = query("find_uid")
DELETE_KEYS_OF_RUN = query("delete_keys_of_run")
DELETE_KEYS_OF_TREE = query("delete_keys_of_tree")
DELETE_FACTS_OF_ROOT = query("delete_facts_of_root")
DELETE_UNFIRED_TIMERS = query("delete_unfired_timers")

BY_RUN_ID = (query("delete_tasks_of_run"), query("delete_dead_tasks_of_run"))
BY_KEY = tuple(
    query(f"delete_{what}")
    for what in (
        "events", "inbox", "receipts", "timers", "entries", "activities", "snapshot",
        "attributes", "details", "values", "run",
    )
)  # fmt: skip


class SqliteDelete(SessionStore):
    """Deletes runs with their descendants and contents."""

    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        # A tree may own any number of rows: never in the event loop.
        gone = await self._session.write(
            lambda db: delete_tree(
                UnitOfWork(db, self.clock.now()),
                run_id,
                uid,
                only_ended=only_ended,
                open_at=open_at or {},
                sends=sends,
            ),
            rows=UNKNOWN_ROWS,
            timeout=timeout,
        )
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return run_id in gone

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        return await self._session.write(
            lambda db: expire_trees(db, before, status, limit), rows=UNKNOWN_ROWS, timeout=timeout
        )


def end_run(unit: UnitOfWork, row: RunRow) -> None:
    """End a run: no owner, no wake-up, no task."""
    row.runnable_at = row.owner = row.claimed_until = None
    row.ended_at = row.ended_at or unit.now  # an import gives the time
    row.is_changed = row.is_moved = True
    for sql in BY_RUN_ID:
        unit.connection.execute(sql, (row.id,))
    unit.connection.execute(DELETE_UNFIRED_TIMERS, (row.key,))


def delete_tree(
    unit: UnitOfWork,
    run_id: str,
    uid: str | None,
    *,
    only_ended: bool,
    open_at: Mapping[str, str | None],
    sends: Sequence[Send],
) -> list[str]:
    """Delete a tree, with `uid` only that life of its root, and deliver items: see `Store.delete`."""
    connection = unit.connection
    if uid is not None and scalar(connection, FIND_UID, (run_id,)) != uid:
        return []
    open = find_open(connection, run_id) if only_ended else []
    if others := [id for id in open if not _is_at(unit, id, open_at)]:
        raise RunsOpen(run_id, others)
    gone = forget_tree(connection, run_id)
    unit.forget(gone)
    for send in sends:
        deliver(unit, send)
    unit.write()
    return gone


def _is_at(unit: UnitOfWork, run_id: str, open_at: Mapping[str, str | None]) -> bool:
    """Whether nothing was committed to a run since it was read."""
    if run_id not in open_at:
        return False
    seen, row = open_at[run_id], unit.find(run_id)
    return seen is None or (row is not None and row.commit_id == seen)


def find_open(connection: Connection, run_id: str) -> list[str]:
    """The runs of a tree that have not ended, or are being moved to another store."""
    return [id for (id,) in connection.execute(FIND_OPEN, {"id": run_id}).fetchall()]


def find_tree(connection: Connection, run_id: str) -> list[str]:
    """A run and its descendants."""
    return [row[1] for row in connection.execute(FIND_TREE, {"id": run_id}).fetchall()]


def forget_tree(connection: Connection, run_id: str, *, spare: Collection[str] = ()) -> list[str]:
    """Delete a run with its descendants and all that they own, except the runs to `spare`, which keep
    the facts of the tree. Returns the ids of deleted runs."""
    tree = connection.execute(FIND_TREE, {"id": run_id}).fetchall()
    if spare:
        tree = [row for row in tree if row[1] not in spare]
    keys, ids = [(row[0],) for row in tree], [row[1] for row in tree]
    for sql in BY_KEY:
        connection.executemany(sql, keys)
    for sql in BY_RUN_ID:
        connection.executemany(sql, [(id,) for id in ids])
    if spare:
        connection.executemany(DELETE_KEYS_OF_RUN, [(id,) for id in ids])
    else:
        connection.execute(DELETE_KEYS_OF_TREE, {"id": run_id})
    gone = Counter((workflow, status) for _, _, workflow, status in tree)
    add_counts(connection, {pair: -number for pair, number in gone.items()})
    if run_id in ids and not spare:
        connection.execute(DELETE_FACTS_OF_ROOT, (run_id,))
    return ids


def expire_trees(
    connection: Connection, before: datetime, status: Collection[Status], limit: int
) -> list[str]:
    """Delete trees that ended before a time. Returns the ids of their roots."""
    statuses = text([one.value for one in status]) if status else None
    parameters = {"before": to_micros(before), "statuses": statuses, "limit": limit}
    ended = [id for (id,) in connection.execute(FIND_ENDED, parameters).fetchall()]
    for id in ended:
        forget_tree(connection, id)
    return sorted(ended)
