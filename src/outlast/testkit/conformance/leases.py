"""Leases: how long a claim lives, how it is kept alive, and how it is given back."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from outlast.errors import Fenced, InvalidValue
from outlast.model import Commit, Run
from outlast.ports import Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    claimed_ids,
    done,
    events,
    finish,
    take,
    unchanged,
)


class Leases(StoreContract):
    """`renew`, `release`, `extend`, `give_back`."""

    # -- renew --------------------------------------------------------------------------------

    @pytest.mark.proves("S-14", "C-11")
    async def test_a_renewed_claim_lives_on(self, store: Store) -> None:
        """Renewing sets the lease from now on; others wait for the new end, not the old one."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await self.advance(store, TTL / 2)
        now = await store.now()
        (renewed,) = await store.renew([claim], TTL)
        assert renewed is not None
        assert renewed.expires_at is not None
        assert abs(renewed.expires_at - now - timedelta(seconds=TTL)) < timedelta(seconds=1)
        assert (renewed.token, renewed.owner) == (claim.token, claim.owner)
        assert (await store.get("r")).claimed_until == renewed.expires_at
        await self.advance(store, TTL * 0.75)
        assert await claimed_ids(store) == []
        await self.advance(store, TTL / 2)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("C-11")
    async def test_renewing_may_shorten_a_lease(self, store: Store) -> None:
        """The lease becomes `ttl` from now, also if that is sooner."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await store.renew([claim], TTL / 4)
        await self.advance(store, TTL / 2)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("C-28", "S-14")
    async def test_an_expired_claim_that_nobody_took_is_renewed(self, store: Store) -> None:
        """An owner with an expired lease may continue if no other process has claimed the run."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await self.advance(store, 2 * TTL)
        (renewed,) = await store.renew([claim], TTL)
        assert renewed is not None
        assert await claimed_ids(store) == []

    @pytest.mark.proves("I5", "S-12")
    async def test_a_superseded_claim_is_not_renewed(self, store: Store) -> None:
        """A renewal by the old owner is refused, and does not extend the new owner's lease."""
        await begin_runnable(store, "r")
        old = await take(store, "r", owner="old")
        await self.advance(store, 2 * TTL)
        new = await take(store, "r", owner="new", ttl=TTL)
        async with unchanged(store, "r"):
            assert await store.renew([old], 10 * TTL) == [None]
        assert (await store.get("r")).claimed_until == new.expires_at

    @pytest.mark.proves("I5", "S-14")
    async def test_a_released_claim_is_not_renewed(self, store: Store) -> None:
        """What was given back stays free."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        await store.release([claim])
        assert await store.renew([claim], TTL) == [None]
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("S-14", "S-15")
    async def test_many_claims_are_renewed_at_once(self, store: Store) -> None:
        """Each claim is answered in its place: renewed, or None if it was lost."""
        await begin_runnable(store, "a", "b", "c")
        claims = [await take(store, id) for id in ("a", "b", "c")]
        await finish(store, "b", token=claims[1].token)
        first, second, third = await store.renew(claims, TTL)
        assert first is not None
        assert second is None
        assert third is not None
        assert (first.run_id, third.run_id) == ("a", "c")
        assert await store.renew([], TTL) == []

    @pytest.mark.proves("S-14", "S-15")
    async def test_a_thousand_claims_in_one_call(self, store: Store) -> None:
        """A worker may claim, renew and release more runs at once than fit in a statement."""
        ids = [f"r{n:04}" for n in range(1_200)]
        for start in range(0, len(ids), 400):
            chunk = ids[start : start + 400]
            await store.commit([Commit(run_id=id, create=Run(id=id)) for id in chunk])
        claimed = await store.claim_runs("w", TTL, run_ids=ids, limit=5000)
        claims = [one.claim for one in claimed]
        assert sorted(claim.run_id for claim in claims) == ids
        assert None not in await store.renew(claims, TTL)
        assert await store.release(claims) == [True] * len(ids)

    @pytest.mark.proves("I29")
    async def test_a_lease_is_judged_by_the_store(self, store: Store) -> None:
        """What a worker believes about its lease does not matter; the store's clock decides."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        assert claim.expires_at is not None
        await self.advance(store, TTL + 1)
        dreamer = msgspec.structs.replace(claim, expires_at=claim.expires_at + timedelta(days=1))
        assert await claimed_ids(store, owner="other") == ["r"]
        assert await store.renew([dreamer], TTL) == [None]

    # -- release ------------------------------------------------------------------------------

    @pytest.mark.proves("S-06", "S-14")
    async def test_a_released_run_is_available_at_once(self, store: Store) -> None:
        """After a release the run can be claimed without waiting for the lease to expire."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        assert await store.release([claim]) == [True]
        record = await store.get("r")
        assert (record.owner, record.claimed_until) == (None, None)
        assert await claimed_ids(store) == ["r"]

    @pytest.mark.proves("S-06", "I5")
    async def test_a_lost_claim_cannot_be_released(self, store: Store) -> None:
        """Released already, superseded or never given: False, and the owner keeps the run."""
        await begin_runnable(store, "r", "s")
        claim = await take(store, "r")
        assert await store.release([claim]) == [True]
        assert await store.release([claim]) == [False]
        new = await take(store, "r", owner="new")
        unknown = msgspec.structs.replace(claim, run_id="unknown")
        never = msgspec.structs.replace(claim, run_id="s")
        async with unchanged(store, "r", "s"):
            assert await store.release([claim, unknown, never]) == [False, False, False]
        assert await store.release([claim, new]) == [False, True]

    @pytest.mark.proves("S-06", "C-10")
    async def test_a_commit_may_release_its_run(self, store: Store) -> None:
        """The last commit of a turn gives the claim back in the same step."""
        await begin_runnable(store, "r")
        claim = await take(store, "r")
        last = Commit(run_id="r", token=claim.token, events=events("r", 1), release=True)
        assert not (await done(store, last)).still_runnable
        assert (await store.get("r")).owner is None
        assert await store.renew([claim], TTL) == [None]
        assert await claimed_ids(store) == ["r"]

    # -- by duration --------------------------------------------------------------------------

    @pytest.mark.proves("S-07", "C-11")
    async def test_a_claim_is_extended_by_a_duration(self, store: Store) -> None:
        """`extend` adds to what is left of the lease."""
        await begin(store, "r")
        claim = await take(store, "r")
        extended = await store.extend(claim, timedelta(seconds=TTL))
        assert claim.expires_at is not None
        assert extended.expires_at is not None
        gained = extended.expires_at - claim.expires_at
        assert abs(gained - timedelta(seconds=TTL)) < timedelta(seconds=1)

    @pytest.mark.proves("S-07", "C-11")
    async def test_a_claim_is_not_extended_for_ever(self, store: Store) -> None:
        """A lease never reaches further than a day from now, and never backwards."""
        await begin(store, "r")
        claim = await take(store, "r")
        extended = await store.extend(claim, timedelta(days=9))
        assert extended.expires_at is not None
        limit = await store.now() + timedelta(days=1, seconds=1)
        assert extended.expires_at <= limit
        for nothing in (timedelta(0), timedelta(seconds=-1)):
            with pytest.raises(InvalidValue):
                await store.extend(claim, nothing)

    @pytest.mark.proves("S-06", "S-07")
    async def test_a_lost_claim_is_neither_extended_nor_given_back(self, store: Store) -> None:
        """For one claim, losing it is an error that says to stop."""
        await begin(store, "r")
        claim = await take(store, "r")
        await store.give_back(claim)
        with pytest.raises(Fenced):
            await store.give_back(claim)
        with pytest.raises(Fenced):
            await store.extend(claim, timedelta(seconds=1))
