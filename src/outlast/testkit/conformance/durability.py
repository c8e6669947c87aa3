"""Durability: an acknowledged commit is there when the store is opened again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlast.errors import Fenced
from outlast.model import Commit
from outlast.ports import Capability, Durability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.run_contents import furnish, seen_of
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    done,
    events,
    everything,
    refused,
    take,
)


class Durable(StoreContract):
    """What is left when the process ends. Needs the hook `reopen`; a store that keeps nothing
    says so in `durability`."""

    async def _reopened(self, store: Store) -> Store:
        """The store as a new process would open it; for a store that keeps nothing, a skip."""
        if not store.durable:
            assert store.durability is Durability.NOTHING
            pytest.skip("not durable: the store declares that nothing survives its process")
        return await self.reopen(store)

    @pytest.mark.proves("C-01")
    async def test_a_store_says_what_it_survives(self, store: Store) -> None:
        """`durability` is one of the published classes, and `durable` follows from it."""
        assert isinstance(store.durability, Durability)
        assert store.durable is (store.durability > Durability.NOTHING)

    @pytest.mark.proves("R-22", "I3", "S-19", "I13")
    async def test_everything_survives(self, store: Store) -> None:
        """Record, history and all that a run owns are the same for the next process."""
        await furnish(store, "r")
        before = await seen_of(store, "r")
        async with await self._reopened(store) as reopened:
            assert await seen_of(reopened, "r") == before

    @pytest.mark.proves("R-22", "I1", "C-03")
    async def test_a_history_goes_on_where_it_was(self, store: Store) -> None:
        """Sequences, revisions, event ids and the last commit id are still known."""
        last = Commit(run_id="r", events=events("r", 2))
        await begin(store, "r", *events("r", 1))
        await done(store, last)
        async with await self._reopened(store) as reopened:
            assert (await done(reopened, last)).again
            more = Commit(run_id="r", expected=3, revision=2, events=events("r", 1))
            assert (await done(reopened, more)).sequence == 4

    @pytest.mark.proves("R-22", "I6", "C-28")
    async def test_a_claim_outlives_its_process(self, store: Store) -> None:
        """The lease holds, the token fences, and the next token is greater."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        async with await self._reopened(store) as reopened:
            assert await reopened.claim_runs("other", TTL, run_ids=["r"]) == []
            await refused(reopened, Commit(run_id="r", events=events("r", 1)), Fenced)
            await done(reopened, Commit(run_id="r", token=claim.token, events=events("r", 1)))
            await self.advance(reopened, 2 * TTL)
            assert (await take(reopened, "r", owner="other")).token > claim.token

    @needs(Capability.DELETE)
    @pytest.mark.proves("R-22", "I25", "I6")
    async def test_what_was_deleted_stays_deleted(self, store: Store) -> None:
        """And its tokens stay used."""
        empty = await everything(store, "r")
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await store.delete("r")
        async with await self._reopened(store) as reopened:
            assert await everything(reopened, "r") == empty
            await begin(reopened, "r", runnable_at=await reopened.now() + timedelta(1))
            assert (await take(reopened, "r")).token > claim.token
