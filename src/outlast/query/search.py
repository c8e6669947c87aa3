"""Search: runs that match, in an order, within a budget of rows.

The filter checks each run that the plan finds. When the budget is used up, the page ends: it may be short or
empty, and its cursor continues after the last run that was read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec
from msgspec import Struct

from outlast.model.query import (
    Order,
    RunQuery,
    check_limit,
    cursor_at,
    cursor_of,
    parse_cursor,
)
from outlast.model.run import Run
from outlast.model.times import to_micros
from outlast.ports.store import Store
from outlast.query.filter import Filter
from outlast.query.plan import Plan, best_order, is_counted, plan

BUDGET = 10_000
COUNT_CAP = 10_000
COUNT_BUDGET = 100_000
PAGE = 500


class Matches(Struct, frozen=True):
    """A page of matches, the cursor of the next page (None: the last page), and how many rows were read."""

    runs: list[Run]
    next: str | None
    read: int


class Count(Struct, frozen=True):
    """The number of matches; with `more`, a lower bound."""

    number: int
    more: bool = False

    def __str__(self) -> str:
        return f"{self.number:,}{'+' if self.more else ''}"


async def search(
    store: Store,
    filter: Filter,
    *,
    order: Order = Order.NEWEST,
    limit: int = 100,
    after: str | None = None,
    budget: int = BUDGET,
    now: datetime | None = None,
) -> Matches:
    """A page of matches. To read the next page, pass the same order and the same `now`: relative times would
    shift otherwise."""
    check_limit(limit)
    now = now or await store.now()
    search_plan = plan(filter, now, order)
    merged = _MergedSearch(store, search_plan, after, _page_size(search_plan, limit, budget))
    runs: list[Run] = []
    last, checked = None, 0
    while (run := await merged.next()) is not None:
        if last is not None and (len(runs) == limit or checked >= budget):
            return Matches(runs, cursor_of(last, order), merged.read)
        if filter.matches(run, now):
            runs.append(run)
        last, checked = run, checked + 1
    return Matches(runs, None, merged.read)


async def all_matching(
    store: Store, filter: Filter, *, now: datetime | None = None
) -> AsyncIterator[Run]:
    """All matches, newest first, without a budget."""
    now = now or await store.now()
    merged = _MergedSearch(store, plan(filter, now), None, PAGE)
    while (run := await merged.next()) is not None:
        if filter.matches(run, now):
            yield run


async def count(
    store: Store,
    filter: Filter,
    *,
    cap: int = COUNT_CAP,
    now: datetime | None = None,
    progress: Callable[[int], None] | None = None,
) -> Count:
    """Count the matches: exactly from the store's counts if the filter uses only status and workflow, otherwise
    up to `cap`, reading at most 100,000 runs. `progress` gets the number of runs read."""
    now = now or await store.now()
    if is_counted(filter):
        counts = await store.counts()
        return Count(
            sum(
                number
                for (workflow, status), number in counts.items()
                if filter.matches(Run(id="", workflow=workflow, status=status), now)
            )
        )
    merged = _MergedSearch(store, plan(filter, now, best_order(filter, now)), None, PAGE)
    number = 0
    while (run := await merged.next()) is not None:
        if number >= cap or merged.read > COUNT_BUDGET:
            return Count(number, more=True)
        number += filter.matches(run, now)
        if progress is not None:
            progress(merged.read)
    return Count(number)


class _MergedSearch:
    """The runs of all searches of a plan merged in one order, each once."""

    def __init__(self, store: Store, plan: Plan, after: str | None, page: int) -> None:
        self.read = 0
        self._plan = plan
        start = _start(plan, after)
        self._searches = [
            _PagedSearch(store, msgspec.structs.replace(search, limit=page, after=start))
            for search in plan.searches
        ]
        self._last: _Position | None = None

    async def next(self) -> Run | None:
        """The next run, or None if that was all."""
        order = self._plan.order
        while True:
            best: _PagedSearch | None = None
            for each in self._searches:
                self.read += await each.fill()
                if each.position is not None and (
                    best is None
                    or best.position is None
                    or order.is_past(best.position, each.position)
                ):
                    best = each
            if best is None or best.position is None:
                return None
            position, run = best.position, best.take()
            if self._is_past_end(order.moment(run)):
                return None
            if position != self._last:
                self._last = position
                return run

    def _is_past_end(self, moment: datetime) -> bool:
        """Whether no later run can match."""
        since, until = self._plan.since, self._plan.until
        if self._plan.order.ascending:
            return until is not None and moment >= until
        return since is not None and moment < since


_Position = tuple[int, str]


class _PagedSearch:
    """One search, read page by page."""

    def __init__(self, store: Store, query: RunQuery) -> None:
        self._store = store
        self._order = query.order
        self._query: RunQuery | None = query
        self._runs: list[Run] = []
        self.position: _Position | None = None

    async def fill(self) -> int:
        """Read the next page if the last one is used up; returns the number of rows read."""
        if self.position is not None or self._query is None:
            return 0
        page = await self._store.find(self._query)
        self._runs = page.items[::-1]
        self._query = (
            None if page.next is None else msgspec.structs.replace(self._query, after=page.next)
        )
        self._advance()
        return len(page.items)

    def take(self) -> Run:
        """The next run."""
        run = self._runs.pop()
        self._advance()
        return run

    def _advance(self) -> None:
        run = self._runs[-1] if self._runs else None
        self.position = None if run is None else self._order.position(run)


def _start(plan: Plan, after: str | None) -> str | None:
    """The cursor of the first page: a bound on the sort time is a position in the index."""
    order = plan.order
    edge = plan.since if order.ascending else plan.until
    if edge is None:
        return after
    bound = cursor_at((to_micros(edge), ""), order)
    if after is None or order.is_past(parse_cursor(bound, order), parse_cursor(after, order)):
        return bound
    return after


def _page_size(plan: Plan, limit: int, budget: int) -> int:
    # One row more than the limit shows whether there is a next page.
    wanted = limit + 1 if plan.exact else max(limit + 1, PAGE)
    return min(wanted, budget, 10_000)
