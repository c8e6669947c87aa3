"""Queries: what the query language asks of a store has the same answer as plain Python gives."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from outlast.errors import InvalidValue
from outlast.model import Change, Commit, Run, RunQuery, Start, Status
from outlast.model.query import Order
from outlast.ports import Capability, Store
from outlast.query import all_matching, count, parse, search
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.sample_runs import NOW, a_run, by_change, sample_query, settle
from outlast.testkit.conformance.scenario import begin, done, gathered, take

MANY = 120
ASKED = 3


class Queries(StoreContract, needs=(Capability.FIND,)):
    """`outlast.query` over `find` and `counts`: pages, orders, counts."""

    async def _crowd(self, store: Store, chance: random.Random) -> list[Run]:
        """Runs of all kinds, some of them changed later, as the store has them."""
        runs = [a_run(chance, number) for number in range(MANY)]
        await settle(store, runs)
        for run in chance.sample([run for run in runs if not run.status.terminal], 8):
            await self.advance(store, chance.choice([0, 0.5, 60]))
            await done(store, Commit(run_id=run.id, change=Change(current_step="ship#2")))
        return await gathered(store.find_all(RunQuery(limit=50)))

    @pytest.mark.proves("S12")
    async def test_answers_are_those_of_plain_python(self, store: Store) -> None:
        """Random questions, page by page under a small budget: each run that a plain filter finds is
        there once, in the order that was asked for; a count is exact, or says that there are more."""
        chance = random.Random(8)
        runs = await self._crowd(store, chance)
        assert len(runs) == MANY
        for number, order in enumerate([*Order] * ASKED):
            ordered = sorted(runs, key=order.position, reverse=not order.ascending)
            text, meaning = by_change(chance, runs) if number % 3 == 0 else sample_query(chance)
            expected = [run.id for run in ordered if meaning(run)]
            limit, budget = chance.choice([9, 40, 100]), chance.choice([70, 10_000])
            found = [run.id async for run in _paged(store, text, order, limit, budget)]
            assert found == expected, text
            everything = [run.id async for run in all_matching(store, parse(text), now=NOW)]
            assert sorted(everything) == sorted(expected), text
            total = await count(store, parse(text), cap=50, now=NOW)
            assert total.number == len(expected) or (total.more and total.number < len(expected))

    @pytest.mark.proves("I13")
    async def test_runs_by_their_last_change(self, store: Store) -> None:
        """Whatever changes a record puts it first; who holds a run is of no matter, and a run that is
        gone is not there."""
        for id in "abcd":
            await self.advance(store, 1)
            await begin(store, id, workflow="w")
        await self.advance(store, 1)
        await done(store, Commit(run_id="b", change=Change(error="touched")))
        claim = await take(store, "c")
        assert await self._listed(store, Order.LATEST) == ["b", "d", "c", "a"]
        await self.advance(store, 1)
        await done(store, Commit(run_id="c", token=claim.token, change=Change(error="touched")))
        assert await self._listed(store, Order.LATEST) == ["c", "b", "d", "a"]
        assert await self._listed(store, Order.STALEST) == ["a", "d", "b", "c"]
        assert await self._listed(store, Order.OLDEST) == ["a", "b", "c", "d"]
        await self.advance(store, 1)
        end = Change(status=Status.COMPLETED)
        await done(store, Commit(run_id="d", change=end))
        assert await self._listed(store, Order.LATEST) == ["d", "c", "b", "a"]
        some = RunQuery(order=Order.LATEST, status=frozenset({Status.PENDING}), workflow="w")
        assert [run.id for run in (await store.find(some)).items] == ["c", "b", "a"]
        if Capability.DELETE in store.capabilities:
            await store.delete("c")
            assert await self._listed(store, Order.LATEST) == ["d", "b", "a"]

    @pytest.mark.proves("I13")
    @needs(Capability.CHILDREN)
    async def test_children_are_in_every_order(self, store: Store) -> None:
        """A run that its parent begins is listed by its creation and its last change like others."""
        await begin(store, "p")
        await self.advance(store, 1)
        await done(store, Commit(run_id="p", starts=(Start(Run(id="p~c", parent="p")),)))
        await self.advance(store, 1)
        await done(store, Commit(run_id="p~c", change=Change(error="x")))
        assert await self._listed(store, Order.LATEST) == ["p~c", "p"]
        of_parent = RunQuery(parent="p", order=Order.OLDEST)
        assert [run.id for run in (await store.find(of_parent)).items] == ["p~c"]

    @pytest.mark.proves("S12")
    async def test_a_cursor_belongs_to_its_order(self, store: Store) -> None:
        """One of another order is refused: it would skip or repeat."""
        for id in "abc":
            await begin(store, id)
        page = await store.find(RunQuery(order=Order.LATEST, limit=1))
        assert page.next is not None
        for other in (Order.NEWEST, Order.OLDEST, Order.STALEST):
            with pytest.raises(InvalidValue, match="order"):
                await store.find(RunQuery(order=other, after=page.next))

    async def _listed(self, store: Store, order: Order) -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = await store.find(RunQuery(order=order, limit=2, after=after))
            found += [run.id for run in page.items]
            if page.next is None:
                return found
            after = page.next


async def _paged(
    store: Store, text: str, order: Order, limit: int, budget: int
) -> AsyncIterator[Run]:
    after: str | None = None
    while True:
        page = await search(
            store, parse(text), order=order, limit=limit, after=after, budget=budget, now=NOW
        )
        assert len(page.runs) <= limit
        for run in page.runs:
            yield run
        if page.next is None:
            return
        after = page.next
