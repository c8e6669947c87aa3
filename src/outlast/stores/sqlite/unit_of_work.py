"""UnitOfWork: the runs that one transaction touches, read once, changed in Python, written once.

Many commits arrive in one batch. Their runs are read in one query; each commit then changes rows in
memory, in order, so that it sees the changes of the commits before it; at the end everything is
written, one statement for each kind of row. Other contents of a run (items, tasks, timers …) are
written at once, since nothing refers to them before the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec import UNSET
from msgspec.structs import astuple

from outlast.model.event import Event
from outlast.model.run import Attribute, Change, Run
from outlast.model.times import EPOCH, to_micros
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.rows import (
    COLD,
    RUN_COLUMNS,
    RunRow,
    detail_row,
    event_rows,
    tag,
    text,
    value_row,
)
from outlast.stores.sqlite.schema import query

LOAD_RUN = query("load_run")
LOAD_RUNS = query("load_runs")
INSERT_RUNS = query("insert_runs")
ADVANCE_RUNS = query("advance_runs")
UPDATE_RUNS = query("update_runs")
INSERT_DETAILS = query("insert_details")
INSERT_VALUES = query("insert_values")
INSERT_EVENTS = query("insert_events")
INSERT_ATTRIBUTES = query("insert_attributes")
DELETE_ATTRIBUTES = query("delete_attributes")
SET = {name: query(f"set_{name}") for name in COLD}
NOTHING_COLD = (UNSET,) * len(COLD)
READ_COUNTERS = query("read_counters")
WRITE_COUNTERS = query("write_counters")
ADD_COUNTS = query("add_counts")


class Counters:
    """Tokens and keys: they only grow, over the whole store, also across deletes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._read = False
        self._token = self._key = 0
        self._used = False

    def next_token(self) -> int:
        """A token greater than any before."""
        self._load()
        self._used = True
        self._token += 1
        return self._token

    def next_key(self) -> int:
        """A key that no life of a run has had."""
        self._load()
        self._used = True
        self._key += 1
        return self._key

    def save(self) -> None:
        """Write them back, if any was used."""
        if self._used:
            self._connection.execute(WRITE_COUNTERS, (self._token, self._key))
            self._used = False

    def _load(self) -> None:
        # Under the writer's lock: no other connection changes them.
        if not self._read:
            self._token, self._key = self._connection.execute(READ_COUNTERS).fetchall()[0]
            self._read = True


class UnitOfWork:
    """The working set of one transaction."""

    def __init__(self, connection: Connection, now: datetime) -> None:
        self.connection = connection
        self.now = to_micros(now)
        self.counters = Counters(connection)
        self._runs: dict[str, RunRow | None] = {}
        self._details: list[tuple[Any, ...]] = []
        self._values: list[tuple[Any, ...]] = []
        self._cold: dict[str, list[tuple[int, object]]] = {}
        self._events: list[tuple[Any, ...]] = []
        self._counts: dict[tuple[str, str], int] = {}

    # -- reading ------------------------------------------------------------------------------

    def load(self, run_ids: Collection[str]) -> None:
        """Read many runs at once."""
        if len(run_ids) == 1:
            rows = self.connection.execute(LOAD_RUN, tuple(run_ids)).fetchall()
        else:
            rows = self.connection.execute(LOAD_RUNS, (text(run_ids),)).fetchall()
        runs = self._runs
        runs.update(dict.fromkeys(run_ids))
        for row in rows:
            runs[row[1]] = RunRow(*row)

    def find(self, run_id: str) -> RunRow | None:
        """A run as it stands now in this transaction, or None."""
        if run_id not in self._runs:
            self.load([run_id])
        return self._runs[run_id]

    # -- changing -----------------------------------------------------------------------------

    def begin(self, record: Run) -> RunRow:
        """Create a run, or a new life of one."""
        now = self.now
        runnable_at = record.runnable_at
        row = RunRow(
            self.counters.next_key(),
            record.id,
            record.uid,
            record.workflow,
            record.parent,
            record.status.value,
            record.wait_kind,
            record.current_step,
            None if runnable_at is None else max(to_micros(runnable_at), now),
            None,
            0,
            None,
            0,
            0,
            "",
            0,
            now if record.created_at == EPOCH else to_micros(record.created_at),
            now,
            to_micros(record.ended_at) if record.ended_at and record.status.terminal else None,
            is_new=True,
        )
        self._runs[record.id] = row
        self._count(row, 1)
        details = detail_row(row.key, record)
        if details is not None:
            self._details.append(details)
        values = value_row(row.key, record)
        if values is not None:
            self._values.append(values)
        if record.attributes:
            self._index(row, record.attributes)
        return row

    def append(self, row: RunRow, events: Collection[Event]) -> None:
        """Number events and add them to a history."""
        self._events += event_rows(
            events, key=row.key, after=row.sequence, token=row.token, now=self.now
        )
        row.sequence += len(events)
        row.is_changed = True

    def change(self, row: RunRow, change: Change) -> None:
        """Set the fields of the record that are named."""
        if change.wait_kind is not UNSET:
            row.wait_kind = change.wait_kind
        if change.current_step is not UNSET:
            row.current_step = change.current_step
        # Most commits of a running run set the status that it has: no index is touched.
        if change.status is not UNSET and change.status != row.status:
            self._file(row, row.workflow, change.status.value)
        if change.workflow is not UNSET:
            self._file(row, change.workflow, row.status)
        if change.runnable_at is not UNSET:
            due = change.runnable_at
            row.runnable_at = None if due is None else max(to_micros(due), self.now)
            row.is_moved = True
        cold = _cold_fields(change)
        if cold != NOTHING_COLD:
            for name, value in zip(COLD, cold, strict=True):
                if value is not UNSET:
                    self._cold.setdefault(name, []).append((row.key, COLD[name](value)))
        if change.attributes is not UNSET:
            self.connection.execute(DELETE_ATTRIBUTES, (row.key,))
            self._index(row, change.attributes)
        row.is_changed = True

    def forget(self, run_ids: Iterable[str]) -> None:
        """Note that these runs were deleted."""
        for run_id in run_ids:
            self._runs[run_id] = None

    # -- writing ------------------------------------------------------------------------------

    def write(self) -> None:
        """Write what has changed. The unit of work can be used again."""
        new, advanced, moved = [], [], []
        for row in self._runs.values():
            if row is None or not (row.is_new or row.is_changed):
                continue
            if row.is_new:
                new.append(astuple(row)[:RUN_COLUMNS])
            elif row.is_moved:
                moved.append((*_moved(row), *_advanced(row)))
            else:
                advanced.append(_advanced(row))
            row.is_new = row.is_changed = row.is_moved = False
        self._insert(INSERT_RUNS, new)
        self._insert(ADVANCE_RUNS, advanced)
        self._insert(UPDATE_RUNS, moved)
        self._insert(INSERT_DETAILS, self._details)
        self._insert(INSERT_VALUES, self._values)
        for name, values in self._cold.items():
            self._insert(SET[name], values)
        self._insert(INSERT_EVENTS, self._events)
        add_counts(self.connection, self._counts)
        self._details, self._values, self._cold, self._events = [], [], {}, []
        self._counts = {}
        self.counters.save()

    def _insert(self, sql: str, rows: list[Any]) -> None:
        if rows:
            self.connection.executemany(sql, rows)

    def _file(self, row: RunRow, workflow: str, status: str) -> None:
        self._count(row, -1)
        row.workflow, row.status = workflow, status
        self._count(row, 1)
        row.is_moved = True

    def _count(self, row: RunRow, number: int) -> None:
        pair = row.workflow, row.status
        self._counts[pair] = self._counts.get(pair, 0) + number

    def _index(self, row: RunRow, attributes: dict[str, Attribute]) -> None:
        self.connection.executemany(
            INSERT_ATTRIBUTES,
            [(row.key, name, tag(value), row.created_at) for name, value in attributes.items()],
        )


def add_counts(connection: Connection, counts: Mapping[tuple[str, str], int]) -> None:
    """Change the number of runs of each workflow and status."""
    changed = [(*pair, number) for pair, number in counts.items() if number]
    if changed:
        connection.executemany(ADD_COUNTS, changed)


_cold_fields = attrgetter(*COLD)


def _moved(row: RunRow) -> tuple[Any, ...]:
    return (
        row.workflow, row.status, row.runnable_at, row.owner, row.claimed_until, row.ended_at,
    )  # fmt: skip


def _advanced(row: RunRow) -> tuple[Any, ...]:
    return (
        row.wait_kind, row.current_step, row.token, row.sequence, row.revision, row.commit_id,
        row.inbox, row.updated_at, row.key,
    )  # fmt: skip
