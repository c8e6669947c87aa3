"""Search: runs that match, in an order, without reading more than was allowed.

What the indexes cannot decide is decided run by run. If that takes more rows than the budget, the
page ends there: it may be short or empty, and its cursor goes on after the last run looked at.
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
    """Some of the runs that match, the cursor for the rest (None: that was all), and how many rows
    were read for it."""

    runs: list[Run]
    next: str | None
    read: int


class Count(Struct, frozen=True):
    """How many runs match; with `more`, at least so many."""

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
    """A page of the runs that match. The page after it is found with the same `now`, or ages and
    times that are relative will have moved on, and in the same order."""
    check_limit(limit)
    now = now or await store.now()
    ways = plan(filter, now, order)
    walk = _Walk(store, ways, after, _page_size(ways, limit, budget))
    runs: list[Run] = []
    last, looked = None, 0
    while (run := await walk.next()) is not None:
        if last is not None and (len(runs) == limit or looked >= budget):
            return Matches(runs, cursor_of(last, order), walk.read)
        if filter.matches(run, now):
            runs.append(run)
        last, looked = run, looked + 1
    return Matches(runs, None, walk.read)


async def all_matching(
    store: Store, filter: Filter, *, now: datetime | None = None
) -> AsyncIterator[Run]:
    """All runs that match, newest first, however many rows that takes."""
    now = now or await store.now()
    walk = _Walk(store, plan(filter, now), None, PAGE)
    while (run := await walk.next()) is not None:
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
    """How many match: exactly, if it is asked by status and workflow alone, from the counts that
    the store keeps; otherwise up to `cap`, and looking at no more than 100,000 runs. `progress` is
    told how many it has looked at."""
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
    walk = _Walk(store, plan(filter, now, best_order(filter, now)), None, PAGE)
    number = 0
    while (run := await walk.next()) is not None:
        if number >= cap or walk.read > COUNT_BUDGET:
            return Count(number, more=True)
        number += filter.matches(run, now)
        if progress is not None:
            progress(walk.read)
    return Count(number)


class _Walk:
    """The runs of a plan's searches in one order, each once."""

    def __init__(self, store: Store, plan: Plan, after: str | None, page: int) -> None:
        self.read = 0
        self._plan = plan
        start = _start(plan, after)
        self._ways = [
            _Way(store, msgspec.structs.replace(search, limit=page, after=start))
            for search in plan.searches
        ]
        self._last: _Place | None = None

    async def next(self) -> Run | None:
        """The next run, or None if that was all."""
        order = self._plan.order
        while True:
            best: _Way | None = None
            for way in self._ways:
                self.read += await way.look()
                if way.place is not None and (
                    best is None or best.place is None or order.is_past(best.place, way.place)
                ):
                    best = way
            if best is None or best.place is None:
                return None
            place, run = best.place, best.take()
            if self._is_beyond(order.moment(run)):
                return None
            if place != self._last:
                self._last = place
                return run

    def _is_beyond(self, moment: datetime) -> bool:
        """Whether nothing that comes now can match."""
        since, until = self._plan.since, self._plan.until
        if self._plan.order.rises:
            return until is not None and moment >= until
        return since is not None and moment < since


_Place = tuple[int, str]


class _Way:
    """One search, read page by page."""

    def __init__(self, store: Store, query: RunQuery) -> None:
        self._store = store
        self._order = query.order
        self._query: RunQuery | None = query
        self._runs: list[Run] = []
        self.place: _Place | None = None

    async def look(self) -> int:
        """Make sure that the next run, if there is one, is at hand; how many rows were read."""
        if self.place is not None or self._query is None:
            return 0
        page = await self._store.find(self._query)
        self._runs = page.items[::-1]
        self._query = (
            None if page.next is None else msgspec.structs.replace(self._query, after=page.next)
        )
        self._place()
        return len(page.items)

    def take(self) -> Run:
        """The run at hand."""
        run = self._runs.pop()
        self._place()
        return run

    def _place(self) -> None:
        run = self._runs[-1] if self._runs else None
        self.place = None if run is None else self._order.position(run)


def _start(plan: Plan, after: str | None) -> str | None:
    """The cursor to begin at: an index is sorted by a time, so a bound on it is a place."""
    order = plan.order
    edge = plan.since if order.rises else plan.until
    if edge is None:
        return after
    bound = cursor_at((to_micros(edge), ""), order)
    if after is None or order.is_past(parse_cursor(bound, order), parse_cursor(after, order)):
        return bound
    return after


def _page_size(plan: Plan, limit: int, budget: int) -> int:
    # One more than is shown says whether there are others.
    wanted = limit + 1 if plan.exact else max(limit + 1, PAGE)
    return min(wanted, budget, 10_000)
