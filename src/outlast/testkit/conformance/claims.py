"""Claims: the exclusive, expiring right to advance a run, given to one at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlast.errors import InvalidId, InvalidValue
from outlast.model.run import BUG, MISMATCH, Status
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    begin_runnable,
    claimed_ids,
    events,
    finish,
    take,
    unchanged,
)


class Claims(StoreContract):
    """`claim_runs`: who gets which run."""

    @pytest.mark.proves("I24")
    async def test_code_that_has_rejected_a_run_is_not_handed_it_again(self, store: Store) -> None:
        """Claims with the hash of such code get the next ones; other code, and claims without a hash, get
        the run. So does everyone who asks for it by its id, or when it is parked and was sent something."""
        await begin_runnable(store, "fine", "other")
        codes = f"{'a' * 16} {'b' * 16}"
        await begin_runnable(store, *(f"no-{n}" for n in range(3)), rejected_by=codes)
        for id, kind in (("parked", MISMATCH), ("parked by a bug", BUG)):
            await begin_runnable(store, id, rejected_by=codes, status=Status.HALTED, wait_kind=kind)

        async def handed(code: str | None, limit: int = 9) -> list[str]:
            claimed = await store.claim_runs("w", TTL, code=code, limit=limit)
            await store.release([one.claim for one in claimed])
            return sorted(one.run.id for one in claimed)

        assert await handed("a" * 16) == ["fine", "other", "parked", "parked by a bug"]
        assert await handed("b" * 16) == ["fine", "other", "parked", "parked by a bug"]
        rejected = ["no-0", "no-1", "no-2"]
        assert await handed("c" * 16) == ["fine", *rejected, "other", "parked", "parked by a bug"]
        assert await handed(None) == ["fine", *rejected, "other", "parked", "parked by a bug"]
        (named,) = await store.claim_runs("w", TTL, code="a" * 16, run_ids=["no-1"])
        assert named.run.rejections == ("a" * 16, "b" * 16)

    @pytest.mark.proves("I24", "S-13")
    async def test_a_lease_that_ran_out_does_not_bring_a_rejected_run_back(
        self, store: Store
    ) -> None:
        """Code that has rejected a run is not handed it when its next owner has died, either; and those
        behind many rejected ones are found."""
        await begin_runnable(store, *(f"no-{n:02}" for n in range(20)), rejected_by="a" * 16)
        await begin_runnable(store, "fine")
        assert len(await store.claim_runs("dies", TTL, code="b" * 16, limit=20)) == 20
        await self.advance(store, TTL + 1)
        (claimed,) = await store.claim_runs("w", TTL, code="a" * 16, limit=1)
        assert claimed.run.id == "fine"
        assert await store.claim_runs("w", TTL, code="a" * 16, limit=9) == []

    @pytest.mark.proves("S-12", "C-10", "S-24")
    async def test_a_claim_says_who_owns_what_until_when(self, store: Store) -> None:
        """The claim and the record that comes with it agree with what is stored."""
        created = await begin(store, "r", *events("r", 2), runnable_at=NOW)
        before = await store.now()
        (claimed,) = await store.claim_runs("worker-1", TTL)
        claim = claimed.claim
        assert (claim.owner, claim.run_id, claim.uid) == ("worker-1", "r", created.uid)
        assert claim.task_id is None
        assert claim.token > 0
        assert claim.expires_at is not None
        assert before <= claim.claimed_at <= await store.now()
        lease = claim.expires_at - claim.claimed_at
        assert abs(lease - timedelta(seconds=TTL)) < timedelta(seconds=1)
        assert claimed.run == await store.get("r")
        assert (claimed.run.owner, claimed.run.token) == ("worker-1", claim.token)
        assert (claimed.run.claimed_until, claimed.run.sequence) == (claim.expires_at, 2)

    @pytest.mark.proves("I5", "C-12")
    async def test_a_claim_is_no_commit(self, store: Store) -> None:
        """Claimer, renewing and releasing change neither history nor revision nor last commit."""
        await begin(store, "r", *events("r", 1))
        before = await store.get("r")
        claim = await take(store, "r")
        await store.renew([claim], TTL)
        await store.release([claim])
        after = await store.get("r")
        assert (after.sequence, after.revision, after.commit_id) == (
            before.sequence,
            before.revision,
            before.commit_id,
        )

    @pytest.mark.proves("S-12", "S-17", "I5")
    async def test_a_held_run_is_not_given_to_another(self, store: Store) -> None:
        """Until the lease expires no second claim is given, not even to the same owner or by run id."""
        await begin_runnable(store, "r")
        await take(store, "r", owner="first")
        await self.advance(store, TTL / 2)
        for owner in ("second", "first"):
            assert await store.claim_runs(owner, TTL) == []
            assert await store.claim_runs(owner, TTL, run_ids=["r"]) == []

    @pytest.mark.proves("S-13")
    async def test_an_expired_claim_can_be_taken_over(self, store: Store) -> None:
        """When the lease has run out the run is available again, under a greater token."""
        await begin_runnable(store, "r")
        first = await take(store, "r", owner="first")
        await self.advance(store, TTL + 1)
        (second,) = await store.claim_runs("second", TTL)
        assert second.claim.token > first.token
        assert (await store.get("r")).owner == "second"

    @pytest.mark.proves("S-13", "C-10")
    async def test_an_expired_claim_is_found_beside_free_runs_of_other_workflows(
        self, store: Store
    ) -> None:
        """A claim of any workflow finds both kinds: free runs, and runs whose lease has run out,
        also if no run of their workflow is free."""
        await begin_runnable(store, "held", workflow="refund")
        await take(store, "held", owner="first")
        await self.advance(store, TTL + 1)
        await begin_runnable(store, "free", workflow="order")
        assert await claimed_ids(store, owner="second") == ["held", "free"]

    @pytest.mark.proves("S-13", "S-24")
    async def test_a_claim_is_over_at_its_very_end(self, store: Store) -> None:
        """The moment at which a lease ends belongs to the others."""
        await begin_runnable(store, "r")
        await take(store, "r", owner="first")
        await self.advance(store, TTL)
        assert await claimed_ids(store, owner="second") == ["r"]

    @pytest.mark.proves("I6", "I5")
    async def test_tokens_only_grow(self, store: Store) -> None:
        """Every claim has a token greater than all before, over all runs."""
        tokens = []
        for round in range(3):
            for id in ("a", "b"):
                if round == 0:
                    await begin_runnable(store, id)
                claim = await take(store, id)
                tokens.append(claim.token)
                await store.release([claim])
        assert tokens == sorted(set(tokens))

    @needs(Capability.DELETE)
    @pytest.mark.proves("I6", "I25")
    async def test_tokens_grow_over_the_death_of_a_run(self, store: Store) -> None:
        """A run that was deleted and started again gets a token greater than any of its old life."""
        await begin(store, "r")
        first = await take(store, "r")
        await store.delete("r")
        await begin(store, "r")
        assert (await take(store, "r")).token > first.token

    @pytest.mark.proves("C-10")
    async def test_claims_are_for_runs_that_are_due(self, store: Store) -> None:
        """Parked, future and ended runs are left alone."""
        later = await store.now() + timedelta(hours=1)
        await begin(store, "parked")
        await begin(store, "later", runnable_at=later)
        await begin_runnable(store, "ended", "due")
        await finish(store, "ended")
        assert await claimed_ids(store) == ["due"]

    @pytest.mark.proves("C-10")
    async def test_runs_are_claimed_in_the_order_in_which_they_became_due(
        self, store: Store
    ) -> None:
        """Those due longest come first, whatever their ids, and no more than asked for."""
        now = await store.now()
        for id, seconds in [("a", 30), ("b", 10), ("c", 40), ("d", 20)]:
            await begin(store, id, runnable_at=now + timedelta(seconds=seconds))
        await self.advance(store, 100)
        assert await claimed_ids(store, limit=3) == ["b", "d", "a"]
        assert await claimed_ids(store, limit=3) == ["c"]

    @pytest.mark.proves("C-10")
    async def test_claims_keep_to_the_workflows_one_knows(self, store: Store) -> None:
        """A worker gets runs whose code it has, by the whole name; with none it gets nothing."""
        await begin_runnable(store, "a", workflow="order")
        await begin_runnable(store, "b", workflow="order-2")
        await begin_runnable(store, "c", workflow="ship")
        assert await store.claim_runs("w", TTL, workflows=["unknown"], limit=9) == []
        assert await store.claim_runs("w", TTL, workflows=[], limit=9) == []
        claimed = await store.claim_runs("w", TTL, workflows={"order", "ship"}, limit=9)
        assert sorted(one.run.id for one in claimed) == ["a", "c"]

    @pytest.mark.proves("C-10")
    async def test_a_run_can_be_claimed_by_its_id(self, store: Store) -> None:
        """By id a run is claimed whether it is due or not; an unknown one is simply not there."""
        later = await store.now() + timedelta(hours=1)
        await begin_runnable(store, "due", "other")
        await begin(store, "parked")
        await begin(store, "later", runnable_at=later)
        wanted = ["parked", "later", "due", "unknown"]
        claimed = await store.claim_runs("w", TTL, run_ids=wanted, limit=9)
        assert sorted(one.run.id for one in claimed) == ["due", "later", "parked"]
        assert await store.claim_runs("w", TTL, run_ids=[], limit=9) == []

    @pytest.mark.proves("C-10")
    async def test_ids_and_workflows_combine(self, store: Store) -> None:
        """A run claimed by its id must still be of a workflow that was asked for."""
        await begin_runnable(store, "a", workflow="order")
        claimed = await store.claim_runs("w", TTL, run_ids=["a"], workflows=["ship"])
        assert claimed == []

    @pytest.mark.proves("K-15", "I17")
    @pytest.mark.parametrize("ttl", [0.0, -1.0, 86_401.0, float("inf"), float("nan")])
    async def test_an_impossible_lease_is_refused(self, store: Store, ttl: float) -> None:
        """A lease is more than nothing and at most a day, for claiming and for renewing."""
        await begin_runnable(store, "r", "held")
        claim = await take(store, "held")
        async with unchanged(store, "r", "held"):
            with pytest.raises(InvalidValue):
                await store.claim_runs("w", ttl)
            with pytest.raises(InvalidValue):
                await store.renew([claim], ttl)

    @pytest.mark.proves("K-15")
    async def test_bad_claimers_get_nothing(self, store: Store) -> None:
        """An owner needs a name, and a limit has to be at least 1."""
        await begin_runnable(store, "r")
        async with unchanged(store, "r"):
            for owner in ("", "a\nb", "x" * 2000):
                with pytest.raises(InvalidId):
                    await store.claim_runs(owner, TTL)
            for limit in (0, -1, 10_001):
                with pytest.raises(InvalidValue):
                    await store.claim_runs("w", TTL, limit=limit)
