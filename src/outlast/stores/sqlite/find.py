"""Searches: newest first, filtered before the limit, each along the index that narrows it most.

The index `runs_filed` has runs by workflow and status. A search for a workflow, a status or both takes
the newest of each pair that it needs and merges them, so its cost depends on what it returns and not on
what the store holds. Other filters are checked run by run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from outlast.model.event import Event
from outlast.model.query import Order, Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.rows import STATUS, tag, text, to_events, to_run
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore

COUNT_RUNS = query("count_runs")
FIND_FILES = query("find_files")
FIND_NEWEST = query("find_newest")
FIND_OLDEST = query("find_oldest")
FIND_LATEST = (query("find_latest_at_rest"), query("find_latest_held"))
FIND_STALEST = (query("find_stalest_at_rest"), query("find_stalest_held"))
FIND_FILED = query("find_filed")
FIND_CHILDREN = query("find_children")
FIND_ATTRIBUTED = query("find_attributed")
HAS_ATTRIBUTE = query("has_attribute")
FIND_RUN = query("find_run")
FIND_RUNS_BY_KEY = query("find_runs_by_key")

LOAD_HISTORY = query("load_history")

START_OF_TIME, END_OF_TIME = (-(2**63), ""), (2**63 - 1, "\U0010ffff")
PAGE = 500
NO_LIMIT = 2**62
MAX_INLINE_HISTORIES = 20
"""Histories that are read in the event loop; they are short as a rule."""


class Found(NamedTuple):
    """The columns that filters read. Sorts by the time of the query's order."""

    moment: int
    id: str
    key: int
    workflow: str
    status: str
    parent: str | None


class SqliteFind(SessionStore):
    """Records, histories and queries."""

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        rows = await self._session.read(
            lambda db: db.execute(FIND_RUN, (run_id,)).fetchall(), timeout=timeout
        )
        return to_run(rows[0]) if rows else None

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:

        def rows(db: Connection, limit: int) -> list[Any]:
            return db.execute(LOAD_HISTORY, (run_id, after, limit)).fetchall()

        found = await self._session.read_page(
            rows, limit=NO_LIMIT if limit is None else limit, timeout=timeout
        )
        return to_events(run_id, found)

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:

        def rows(db: Connection) -> dict[str, list[Any]]:
            return {
                run_id: db.execute(LOAD_HISTORY, (run_id, 0, NO_LIMIT)).fetchall()
                for run_id in run_ids
            }

        found = await self._session.read(
            rows, timeout=timeout, small=len(run_ids) <= MAX_INLINE_HISTORIES
        )
        return {run_id: to_events(run_id, own) for run_id, own in found.items()}

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        return await self._session.read(
            lambda db: find_page(db, query), timeout=timeout, small=False
        )

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        found = await self._session.read(
            lambda db: db.execute(COUNT_RUNS).fetchall(), timeout=timeout, small=False
        )
        return {(workflow, STATUS[status]): number for workflow, status, number in found}


def find_page(connection: Connection, query: RunQuery) -> Page[Run]:
    """A page of runs that match."""
    # One snapshot: a run whose status changes meanwhile is found once.
    connection.execute("BEGIN")
    try:
        start = _start(query)
        walks = [
            _walk(connection, sql, parameters, start, min(query.limit + 1, PAGE))
            for sql, parameters in _walks(connection, query)
        ]
        merged = merge(*walks, reverse=not query.order.ascending)
        matching = (found for found in merged if _matches(connection, query, found))
        page = list(islice(matching, query.limit + 1))
        keys = [found.key for found in page[: query.limit]]
        rows = connection.execute(FIND_RUNS_BY_KEY, (text(keys),)).fetchall()
    finally:
        connection.execute("COMMIT")
    runs = {row[0]: to_run(row) for row in rows}
    items = [runs[key] for key in keys]
    return Page(items, cursor_of(items[-1], query.order) if len(page) > len(items) else None)


def _walks(connection: Connection, query: RunQuery) -> list[tuple[str, dict[str, Any]]]:
    """The statements to merge, with their parameters."""
    if query.order is Order.OLDEST:
        return [(FIND_OLDEST, {})]
    if query.order.by_change:
        return [(sql, {}) for sql in (FIND_STALEST if query.order.ascending else FIND_LATEST)]
    if query.parent is not None:
        return [(FIND_CHILDREN, {"parent": query.parent})]
    for name, value in query.attributes.items():
        return [(FIND_ATTRIBUTED, {"name": name, "value": tag(value)})]
    if query.workflow is None and not query.status:
        return [(FIND_NEWEST, {})]
    workflows = [query.workflow]
    if query.workflow is None:
        workflows = [name for (name,) in connection.execute(FIND_FILES).fetchall()]
    return [
        (FIND_FILED, {"workflow": workflow, "status": status.value})
        for workflow in workflows
        for status in query.status or Status
    ]


def _walk(
    connection: Connection,
    sql: str,
    parameters: dict[str, Any],
    after: tuple[int, str],
    page: int,
) -> Iterator[Found]:
    while True:
        moment, id = after
        values = {**parameters, "moment": moment, "id": id, "limit": page}
        rows = connection.execute(sql, values).fetchall()
        for row in rows:
            yield Found(*row)
        if len(rows) < page:
            return
        after = rows[-1][:2]


def _matches(connection: Connection, query: RunQuery, found: Found) -> bool:
    return (
        (query.workflow is None or found.workflow == query.workflow)
        and (not query.status or found.status in query.status)
        and (query.parent is None or found.parent == query.parent)
        and all(
            connection.execute(HAS_ATTRIBUTE, (found.key, name, tag(value))).fetchall()
            for name, value in query.attributes.items()
        )
    )


def _start(query: RunQuery) -> tuple[int, str]:
    if query.after is None:
        return START_OF_TIME if query.order.ascending else END_OF_TIME
    moment, id = parse_cursor(query.after, query.order)
    # A forged cursor may contain any number.
    return max(min(moment, 2**63 - 1), -(2**63)), id
