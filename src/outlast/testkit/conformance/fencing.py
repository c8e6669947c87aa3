"""Fencing: what a claim allows. The lease is for others to wait; it is the token that fences."""

from __future__ import annotations

import msgspec
import pytest

from outlast.errors import Fenced
from outlast.model import Change, Claim, Commit, Creation, Run
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    done,
    events,
    refused,
    take,
    unchanged,
)


class Fencing(StoreContract):
    """Two workers never both advance a run."""

    @pytest.mark.proves("C-28", "I5", "S-17")
    async def test_a_superseded_claim_cannot_commit(self, store: Store) -> None:
        """The old owner is refused with both tokens; nothing of its commit is written."""
        await begin_runnable(store, "r")
        old = await take(store, "r", owner="old")
        await self.advance(store, 2 * TTL)
        new = await take(store, "r", owner="new")
        late = Commit(
            run_id="r", token=old.token, events=events("r", 2), change=Change(error="late")
        )
        refusal = await refused(store, late, Fenced)
        assert (refusal.token, refusal.current) == (old.token, new.token)
        good = Commit(run_id="r", token=new.token, events=events("r", 1))
        assert (await done(store, good)).token == new.token

    @pytest.mark.proves("C-28")
    async def test_an_expired_claim_that_nobody_took_can_commit(self, store: Store) -> None:
        """The lease only says when others may come; without others the owner goes on."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await self.advance(store, 100 * TTL)
        await done(store, Commit(run_id="r", token=claim.token, events=events("r", 1)))

    @pytest.mark.proves("I5", "S-12")
    @pytest.mark.parametrize("state", ["held", "expired", "released"])
    async def test_after_the_first_claim_a_commit_needs_a_token(
        self, store: Store, state: str
    ) -> None:
        """A run that was claimed once is written under a claim, whether it is held now or not."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        if state == "expired":
            await self.advance(store, 2 * TTL)
        elif state == "released":
            await store.release([claim])
        refusal = await refused(store, Commit(run_id="r", events=events("r", 1)), Fenced)
        assert (refusal.token, refusal.current) == (None, claim.token)

    @pytest.mark.proves("I5")
    async def test_a_token_must_be_the_current_one(self, store: Store) -> None:
        """Neither a smaller nor a greater token than the current one opens a run."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        for token in (0, claim.token - 1, claim.token + 1):
            await refused(store, Commit(run_id="r", token=token, events=events("r", 1)), Fenced)

    @pytest.mark.proves("I5")
    async def test_a_released_claim_is_fenced_by_the_next(self, store: Store) -> None:
        """Whoever gave a run back and goes on all the same is stopped by its next owner."""
        await begin_runnable(store, "r")
        first = await take(store, "r")
        await store.release([first])
        await take(store, "r", owner="other")
        await refused(store, Commit(run_id="r", token=first.token, events=events("r", 1)), Fenced)

    @pytest.mark.proves("I5", "C-28")
    async def test_a_claim_opens_only_its_own_run(self, store: Store) -> None:
        """The token of one run is no key to another."""
        await begin_runnable(store, "a", "b")
        claim = await take(store, "a")
        await take(store, "b")
        await refused(store, Commit(run_id="b", token=claim.token, events=events("b", 1)), Fenced)

    @pytest.mark.proves("I5", "I6", "I2")
    async def test_the_history_shows_one_owner_after_the_other(self, store: Store) -> None:
        """Along the sequence the tokens never go back, however often the run changed hands."""
        await begin_runnable(store, "r")
        old: list[Claim] = []
        for turn in range(4):
            claim = await take(store, "r", owner=f"w{turn}")
            await done(store, Commit(run_id="r", token=claim.token, events=events("r", 2)))
            for stale in old:
                late = Commit(run_id="r", token=stale.token, events=events("r", 1))
                await refused(store, late, Fenced)
            old.append(claim)
            await self.advance(store, 2 * TTL)
        tokens = [one.token for one in await store.history("r")]
        assert tokens == sorted(tokens)
        assert len(tokens) == 8

    @needs(Capability.DELETE)
    @pytest.mark.proves("I25", "I5")
    async def test_a_claim_of_an_old_life_is_worth_nothing(self, store: Store) -> None:
        """A run deleted and started again is another run: the old owner cannot touch it."""
        await begin_runnable(store, "r")
        old = await take(store, "r")
        await store.delete("r")
        late = Commit(run_id="r", uid=old.uid, token=old.token, events=events("r", 1))
        await begin_runnable(store, "r")
        await refused(store, late, Fenced)
        await refused(store, msgspec.structs.replace(late, uid=None), Fenced)
        async with unchanged(store, "r"):
            assert await store.renew([old], TTL) == [None]
            assert await store.release([old]) == [False]

    @needs(Capability.DELETE)
    @pytest.mark.proves("I17", "I5", "I25")
    async def test_replacing_a_run_needs_its_token_or_force(self, store: Store) -> None:
        """The owner may replace its run; another one takes it by force, and the owner is out."""
        await begin(store, "r")
        first = await take(store, "r")
        new = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE)
        await refused(store, new, Fenced)
        await done(store, msgspec.structs.replace(new, token=first.token))
        second = await take(store, "r")
        last = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE, force=True)
        await done(store, last)
        await refused(store, Commit(run_id="r", token=second.token, events=events("r", 1)), Fenced)
