"""The same question has the same answer on every store, and it is what plain Python would say."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlast.model.query import Order, Page, RunQuery
from outlast.model.run import Run, Status
from outlast.ports.store import Store
from outlast.query import all_matching, count, parse, search
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.sample_runs import NOW, a_run, sample_query, settle
from tests.stores.postgres.places import FreshStore
from tests.stores.redis.servers import single

MANY = {"memory": 2_000, "sqlite": 10_000, "postgres": 10_000, "redis": 10_000}
QUESTIONS = {"memory": 60, "sqlite": 30, "postgres": 25, "redis": 25}
SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("postgres", "redis")]


def store_of(kind: str, folder: Path) -> Any:
    """An empty store."""
    clock = ManualClock(NOW)
    if kind == "memory":
        return MemoryStore(clock=clock)
    if kind == "sqlite":
        return SqliteStore(f"sqlite:///{folder}/crowd.db", clock=clock)
    return FreshStore(clock=clock) if kind == "postgres" else single(clock=clock)


@pytest.mark.proves("S12")
@pytest.mark.parametrize("kind", ["memory", "sqlite", *SERVERS])
async def test_answers_are_those_of_plain_python(kind: str, tmp_path: Path) -> None:
    """Random questions about a crowd of random runs, page by page under a small budget: each run
    that a plain Python filter finds is there once, in the order of the port."""
    chance = random.Random(kind)
    runs = [a_run(chance, number) for number in range(MANY[kind])]
    async with store_of(kind, tmp_path) as store:
        await settle(store, runs)
        runs = [msgspec.structs.replace(run, updated_at=NOW) for run in runs]
        for _ in range(QUESTIONS[kind]):
            text, meaning = sample_query(chance)
            order = chance.choice([Order.NEWEST, Order.NEWEST, *Order])
            ordered = sorted(runs, key=order.position, reverse=not order.ascending)
            expected = [run.id for run in ordered if meaning(run)]
            limit, budget = chance.choice([7, 100, 700]), chance.choice([900, 10_000])
            found = [
                run.id
                async for page in pages(store, text, order, limit=limit, budget=budget)
                for run in page
            ][: len(expected) + 1]
            assert found == expected[: len(found)], text
            assert len(found) == len(expected) or len(found) >= 3 * limit, text
            total = await count(store, parse(text), cap=500, now=NOW)
            assert total.number == len(expected) or (total.more and total.number < len(expected))


async def pages(
    store: Store, text: str, order: Order, *, limit: int, budget: int
) -> AsyncIterator[list[Run]]:
    """The pages of an answer: the first few full ones, or all."""
    after, seen = None, 0
    while seen < 3 * limit:
        page = await search(
            store, parse(text), order=order, limit=limit, after=after, budget=budget, now=NOW
        )
        assert len(page.runs) <= limit
        yield page.runs
        after, seen = page.next, seen + len(page.runs)
        if after is None:
            return


class CountingStore(MemoryStore):
    """Counts the rows that are read of it."""

    rows = 0

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        page = await super().find(query, timeout=timeout)
        self.rows += len(page.items)
        return page


@pytest.fixture
async def crowd() -> AsyncIterator[CountingStore]:
    """Three thousand runs that are counted as they are read."""
    chance = random.Random(1)
    async with CountingStore(clock=ManualClock(NOW)) as store:
        await settle(store, [a_run(chance, number) for number in range(3_000)])
        yield store


@pytest.mark.parametrize(
    "text",
    ["", "status:failed", "workflow:checkout", "attr.tenant=acme", "age>2d", "status!=failed"],
)
async def test_an_indexed_question_reads_what_it_shows(crowd: CountingStore, text: str) -> None:
    """A first page by status, workflow, attribute or age costs its own rows, not the store's."""
    page = await search(crowd, parse(text), limit=20)
    assert len(page.runs) == 20
    assert crowd.rows <= 3 * 21


async def test_a_budget_ends_a_page_and_its_cursor_goes_on(crowd: CountingStore) -> None:
    """A question that no index answers reads up to its budget; a page without a match has a
    cursor all the same."""
    page = await search(crowd, parse("id:nobody-*"), limit=20, budget=1_000)
    assert page.runs == []
    assert page.next is not None
    assert crowd.rows <= 1_500


async def test_counts_by_status_and_workflow_are_exact_and_others_capped(
    crowd: CountingStore,
) -> None:
    """Beyond the cap a count says `+`, unless it is by status and workflow alone."""
    walk = [run async for run in all_matching(crowd, parse(""))]
    failed = sum(run.status is Status.FAILED for run in walk)
    assert str(await count(crowd, parse("status:failed"), cap=10)) == str(failed)
    assert str(await count(crowd, parse("id:order-*"), cap=10)) == "10+"
