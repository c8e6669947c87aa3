"""The end of a run: what it may not keep, and how it is removed with everything it owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen
from outlast.model.inbox import Send
from outlast.model.run import Status
from outlast.model.times import to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.inbox import deliver
from outlast.stores.sqlite.rows import RunRow, text
from outlast.stores.sqlite.schema import query
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
# The run itself goes last only for the reader of this list: nobody sees the steps in between.
BY_KEY = tuple(
    query(f"delete_{what}")
    for what in (
        "events", "inbox", "receipts", "timers", "entries", "activities", "snapshot",
        "attributes", "details", "values", "run",
    )
)  # fmt: skip


def end_run(book: UnitOfWork, row: RunRow) -> None:
    """The run has ended: nobody owns it, nothing wakes it, no task of it is left to be done."""
    row.runnable_at = row.owner = row.claimed_until = None
    row.ended_at = row.ended_at or book.now  # an import says when it was
    row.is_changed = row.is_moved = True
    for sql in BY_RUN_ID:
        book.connection.execute(sql, (row.id,))
    book.connection.execute(DELETE_UNFIRED_TIMERS, (row.key,))


def delete(
    book: UnitOfWork,
    run_id: str,
    uid: str | None,
    *,
    only_ended: bool,
    open_at: Mapping[str, str | None],
    sends: Sequence[Send],
) -> list[str]:
    """Remove a tree, or if a life is named, only if it is that of its root, and deliver items. With
    `only_ended`, `RunsOpen` if a run of it has not ended and is not one that `open_at` names with its last
    commit."""
    connection = book.connection
    if uid is not None and scalar(connection, FIND_UID, (run_id,)) != uid:
        return []
    open = find_open(connection, run_id) if only_ended else []
    if others := [id for id in open if not _is_at(book, id, open_at)]:
        raise RunsOpen(run_id, others)
    gone = forget_tree(connection, run_id)
    book.forget(gone)
    for send in sends:
        deliver(book, send)
    book.write()
    return gone


def _is_at(book: UnitOfWork, run_id: str, open_at: Mapping[str, str | None]) -> bool:
    """Whether nothing was committed to a run since it was read."""
    if run_id not in open_at:
        return False
    seen, row = open_at[run_id], book.find(run_id)
    return seen is None or (row is not None and row.commit_id == seen)


def find_open(connection: Connection, run_id: str) -> list[str]:
    """The runs of a tree that have not ended, or are being moved to another store."""
    return [id for (id,) in connection.execute(FIND_OPEN, {"id": run_id}).fetchall()]


def find_tree(connection: Connection, run_id: str) -> list[str]:
    """A run and its descendants."""
    return [row[1] for row in connection.execute(FIND_TREE, {"id": run_id}).fetchall()]


def forget_tree(connection: Connection, run_id: str, *, spare: Collection[str] = ()) -> list[str]:
    """Remove a run with its descendants and all they own, except for runs to `spare`, which keep the
    facts of the tree; the ids of those that were there."""
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


def expire(
    connection: Connection, before: datetime, status: Collection[Status], limit: int
) -> list[str]:
    """Remove trees that ended long ago; the ids of their roots."""
    statuses = text([one.value for one in status]) if status else None
    parameters = {"before": to_micros(before), "statuses": statuses, "limit": limit}
    ended = [id for (id,) in connection.execute(FIND_ENDED, parameters).fetchall()]
    for id in ended:
        forget_tree(connection, id)
    return sorted(ended)
