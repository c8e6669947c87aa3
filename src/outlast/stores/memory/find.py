"""Reads of runs: records, histories, and pages of runs by a query."""

from __future__ import annotations

from collections import Counter

from outlast.model.event import Event
from outlast.model.query import Page, RunQuery, cursor_of, parse_cursor
from outlast.model.run import Run, Status
from outlast.stores.memory.tables import TableStore, private


class MemoryFind(TableStore):
    """Records, histories and queries."""

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            return None if life is None else private(life.run)

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        end = None if limit is None else after + limit
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            return [] if life is None else [private(event) for event in life.events[after:end]]

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        with self._locked() as tables:
            found = [life.run for life in tables.lives.values() if query.matches(life.run)]
        order = query.order
        found.sort(key=order.position, reverse=not order.ascending)
        if query.after is not None:
            last = parse_cursor(query.after, order)
            found = [run for run in found if order.is_past(order.position(run), last)]
        page = [private(run) for run in found[: query.limit]]
        return Page(page, cursor_of(page[-1], order) if len(found) > len(page) else None)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        with self._locked() as tables:
            return Counter((life.run.workflow, life.run.status) for life in tables.lives.values())
