"""Reads of runs: records, histories, and pages of runs by a query.

Reads of single records that arrive together go to the server as one statement (`ReadBatcher`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from outlast.model.event import Event
from outlast.model.query import Order, Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.ports.read_batcher import ReadBatcher
from outlast.stores.postgres.commit_contents import attribute_hash
from outlast.stores.postgres.rows import (
    STATUS,
    Row,
    quote,
    quote_or_none,
    to_events,
    to_run,
    unquote,
)
from outlast.stores.postgres.session import SessionStore

START_OF_TIME, END_OF_TIME = (-(2**63), ""), (2**63 - 1, "\U0010ffff")
NO_LIMIT = 2**62


class PostgresFind(SessionStore):
    """Records, histories and queries."""

    @cached_property
    def _records(self) -> ReadBatcher[str, Row]:
        return ReadBatcher(self._read_records)

    async def now(self, *, timeout: float | None = None) -> datetime:
        return await self._session.now(timeout=timeout)

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        row = await self._records.find(run_id, timeout)
        return None if row is None else to_run(row)

    async def _read_records(self, ids: Sequence[str], timeout: float | None) -> dict[str, Row]:
        found = await self._session.read("find_runs", ids, timeout=timeout)
        return {row[1]: row for row in found}

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        found = await self._session.read(
            "load_history", run_id, after, NO_LIMIT if limit is None else limit, timeout=timeout
        )
        return to_events(run_id, found)

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        rows = await self._session.read("load_histories", list(set(run_ids)), timeout=timeout)
        found: dict[str, list[Any]] = {run_id: [] for run_id in run_ids}
        for run_id, *row in rows:
            found[run_id].append(row)
        return {run_id: to_events(run_id, own) for run_id, own in found.items()}

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        order = query.order
        moment, id = START_OF_TIME if order.ascending else END_OF_TIME
        if query.after is not None:
            moment, id = parse_cursor(query.after, order)
        statuses = [status.value for status in query.status] or None
        search = order.value
        if order is Order.NEWEST:  # this order has indexes that narrow the search
            if query.parent is not None:
                search = "children"
            elif query.attributes:
                search = "attributed"
            elif query.workflow is not None or query.status:
                search = "workflow"
                statuses = statuses or [status.value for status in Status]
        rows = await self._session.read(
            "find",
            search,
            quote_or_none(query.workflow),
            statuses,
            quote_or_none(query.parent),
            [attribute_hash(name, value) for name, value in query.attributes.items()],
            # A forged cursor may have any number; outside of 64 bits there is no run.
            max(min(moment, 2**63 - 1), -(2**63)),
            quote(id),
            query.limit + 1,
            timeout=timeout,
        )
        found = [to_run(row) for row in rows]
        page = found[: query.limit]
        return Page(page, cursor_of(page[-1], order) if len(found) > len(page) else None)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        found = await self._session.read("count_runs", timeout=timeout)
        return {(unquote(workflow), STATUS[status]): number for workflow, status, number in found}
