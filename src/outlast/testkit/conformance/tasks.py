"""Tasks: work of a run for workers elsewhere. Leased, never popped; done once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import Fenced, InvalidId, InvalidValue
from outlast.model import Claim, Commit, Task
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, done, unchanged


async def put(store: Store, *tasks: Task) -> None:
    """Add tasks to their runs, one after the other."""
    for task in tasks:
        await done(store, Commit(run_id=task.run_id, tasks=(task,)))


async def hold(store: Store, task_id: str, *, owner: str = "worker", **lease: Any) -> Claim:
    """Claim a task of run `r` that is to be had."""
    claim = await store.claim_task("r", task_id, owner, **lease)
    assert claim is not None
    return claim


async def available(store: Store, **query: Any) -> list[str]:
    """The ids of the tasks that are to be had."""
    return [task.id for task in await store.find_available_tasks(**{"limit": 100, **query})]


def task(id: str, run_id: str = "r", **fields: Any) -> Task:
    """A task of a run."""
    return Task(id=id, run_id=run_id, **fields)


class Tasks(StoreContract, needs=(Capability.TASKS,)):
    """Putting, finding and claiming."""

    @pytest.mark.proves("S-08", "S-24", "M-45", "I28")
    async def test_a_task_comes_back_with_all_its_fields(self, store: Store) -> None:
        """A task shows its run, its step, its definition and input; uid and time are the store's."""
        created = await begin(store, "r")
        full = Task(
            id="t-1",
            queue="gpu",
            kind="activity",
            name="resize",
            run_id="r",
            uid="ignored",
            step="resize#1",
            definition="sha256-abc",
            input=Raw(b'{"b": 1, "a": 2}'),
            priority=3,
            metadata={"trace": "1", "ключ": "✓"},
        )
        before = await store.now()
        await put(store, full)
        (found,) = await store.find_available_tasks()
        stamped = msgspec.structs.replace(full, uid=created.uid, enqueued_at=found.enqueued_at)
        assert found == stamped
        assert before <= found.enqueued_at <= await store.now()

    @pytest.mark.proves("S-08")
    async def test_there_may_be_nothing_to_do(self, store: Store) -> None:
        """An empty list, not an error."""
        assert await store.find_available_tasks() == []

    @pytest.mark.proves("S-08", "C-08")
    async def test_at_most_so_many_tasks_are_found(self, store: Store) -> None:
        """One unless asked for more, never more than asked for."""
        await begin(store, "r")
        await put(store, *(task(id) for id in "abc"))
        assert len(await store.find_available_tasks()) == 1
        assert len(await store.find_available_tasks(limit=2)) == 2
        assert len(await store.find_available_tasks(limit=9)) == 3
        with pytest.raises(InvalidValue):
            await store.find_available_tasks(limit=0)

    @pytest.mark.proves("S-08")
    async def test_tasks_come_in_the_order_in_which_they_should_be_done(self, store: Store) -> None:
        """A smaller priority first, then the longest ready, then the first put."""
        await begin(store, "r")
        later = await store.now() + timedelta(seconds=5)
        await put(
            store,
            task("urgent-late", priority=-1, run_at=later),
            task("z"),
            task("a"),
            task("late", run_at=later),
            task("low", priority=9),
            task("urgent", priority=-1),
        )
        await self.advance(store, 60)
        assert await available(store) == ["urgent", "urgent-late", "z", "a", "late", "low"]

    @pytest.mark.proves("S-08", "S-15")
    async def test_tasks_of_all_runs_are_found_or_those_of_a_queue(self, store: Store) -> None:
        """Workers of a queue see its tasks, of whichever run."""
        for id in ("r", "s"):
            await begin(store, id)
        await put(store, task("a"), task("b", "s"), task("c", "s", queue="gpu"))
        assert await available(store) == ["a", "b", "c"]
        assert await available(store, queue="gpu") == ["c"]
        assert await available(store, queue="default") == ["a", "b"]
        assert await available(store, queue="unknown") == []

    @pytest.mark.proves("S-08", "I15")
    async def test_a_task_is_not_available_before_its_time(self, store: Store) -> None:
        """A delayed task is neither found nor claimed until it is due."""
        await begin(store, "r")
        await put(store, task("t", run_at=await store.now() + timedelta(seconds=100)))
        await self.advance(store, 50)
        assert await available(store) == []
        assert await store.claim_task("r", "t", "worker") is None
        await self.advance(store, 51)
        assert await available(store) == ["t"]
        await hold(store, "t")

    @pytest.mark.proves("S-05", "S-12", "S-24", "C-10")
    async def test_a_claimed_task_is_nobody_elses(self, store: Store) -> None:
        """The claim says who has what until when; others get None and do not see the task."""
        created = await begin(store, "r")
        await put(store, task("t", queue="gpu"))
        before = await store.now()
        claim = await hold(store, "t", ttl=TTL)
        assert (claim.run_id, claim.task_id, claim.queue) == ("r", "t", "gpu")
        assert (claim.owner, claim.uid) == ("worker", created.uid)
        assert claim.is_owned_by("worker")
        assert before <= claim.claimed_at <= await store.now()
        assert claim.expires_at is not None
        assert not claim.is_expired(await store.now())
        assert await store.claim_task("r", "t", "other", ttl=TTL) is None
        assert await store.claim_task("r", "t", "worker", ttl=TTL) is None
        assert await available(store) == []

    @pytest.mark.proves("S-05", "C-06")
    async def test_a_task_that_is_not_there_cannot_be_claimed(self, store: Store) -> None:
        """None for an unknown task, an unknown run, or the task of another run."""
        for id in ("r", "s"):
            await begin(store, id)
        await put(store, task("t", "s"))
        assert await store.claim_task("r", "t", "worker") is None
        assert await store.claim_task("s", "unknown", "worker") is None
        assert await store.claim_task("unknown", "t", "worker") is None

    @pytest.mark.proves("S-13", "I6")
    async def test_an_expired_task_can_be_claimed_again(self, store: Store) -> None:
        """A worker that went silent loses its task to the next one, under a greater token."""
        await begin(store, "r")
        await put(store, task("t"))
        first = await hold(store, "t", ttl=TTL)
        await self.advance(store, TTL / 2)
        assert await available(store) == []
        await self.advance(store, TTL)
        assert first.is_expired(await store.now())
        assert await available(store) == ["t"]
        second = await hold(store, "t", owner="other", ttl=TTL)
        assert second.token > first.token

    @pytest.mark.proves("S-13", "S-24")
    async def test_a_task_is_available_at_the_very_end_of_its_lease(self, store: Store) -> None:
        """As with runs, that moment belongs to the others."""
        await begin(store, "r")
        await put(store, task("t"))
        await hold(store, "t", ttl=TTL)
        await self.advance(store, TTL)
        assert await available(store) == ["t"]
        await hold(store, "t", owner="other", ttl=TTL)

    @pytest.mark.proves("S-13")
    async def test_a_claim_without_a_lease_never_expires(self, store: Store) -> None:
        """Until it is released, it holds."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t")
        assert claim.expires_at is None
        await self.advance(store, 10**8)
        assert await available(store) == []
        assert await store.claim_task("r", "t", "other") is None
        await store.give_back(claim)
        assert await available(store) == ["t"]

    @pytest.mark.proves("S-06", "S-14")
    async def test_a_released_task_is_available_at_once(self, store: Store) -> None:
        """Release says True once; a lost claim is False, or `Fenced` when given back alone."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        assert await store.release([claim]) == [True]
        assert await available(store) == ["t"]
        assert await store.release([claim]) == [False]
        other = await hold(store, "t", owner="other", ttl=TTL)
        with pytest.raises(Fenced):
            await store.give_back(claim)
        assert await store.renew([other], TTL) != [None]

    @pytest.mark.proves("S-07", "S-14", "C-11")
    async def test_a_long_task_is_extended(self, store: Store) -> None:
        """Extending adds to the lease, renewing sets it; a claim without lease stays so."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        extended = await store.extend(claim, timedelta(seconds=TTL))
        await self.advance(store, 1.5 * TTL)
        assert await available(store) == []
        (renewed,) = await store.renew([extended], TTL)
        assert renewed is not None
        await self.advance(store, TTL / 2)
        assert await available(store) == []
        await self.advance(store, TTL)
        assert await available(store) == ["t"]
        await put(store, task("for-ever"))
        endless = await hold(store, "for-ever")
        assert await store.extend(endless, timedelta(seconds=1)) == endless
        assert await store.renew([endless], TTL) == [endless]
        await self.advance(store, 10 * TTL)
        assert await available(store) == ["t"]

    @pytest.mark.proves("S-07", "S-12", "I5")
    async def test_a_task_claim_that_was_lost_is_not_renewed(self, store: Store) -> None:
        """Superseded, released or gone: None, and the new owner's lease is as it was."""
        await begin(store, "r")
        await put(store, task("superseded"), task("released"), task("gone"))
        ids = ("superseded", "released", "gone")
        claims = [await hold(store, id, ttl=TTL) for id in ids]
        await store.release([claims[1]])
        await done(store, Commit(run_id="r", drops=("gone",)))
        await self.advance(store, 2 * TTL)
        await hold(store, "superseded", owner="new", ttl=TTL)
        assert await store.renew(claims, 10 * TTL) == [None, None, None]
        await self.advance(store, 2 * TTL)
        assert await available(store) == ["superseded", "released"]
        with pytest.raises(Fenced):
            await store.extend(claims[0], timedelta(seconds=1))

    @pytest.mark.proves("C-28", "S-14")
    async def test_an_expired_task_that_nobody_took_is_renewed(self, store: Store) -> None:
        """As with runs: an expired claim is valid until it is superseded."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        await self.advance(store, 2 * TTL)
        (renewed,) = await store.renew([claim], TTL)
        assert renewed is not None
        assert await available(store) == []

    @pytest.mark.proves("K-15", "S-05")
    async def test_bad_task_claims_are_refused(self, store: Store) -> None:
        """Names have to be names, and a lease a lease."""
        await begin(store, "r")
        await put(store, task("t"))
        async with unchanged(store, "r"):
            for run_id, id, owner in [("a:b", "t", "w"), ("r", "", "w"), ("r", "t", "")]:
                with pytest.raises(InvalidId):
                    await store.claim_task(run_id, id, owner)
            for ttl in (0.0, -1.0, 86_401.0, float("nan")):
                with pytest.raises(InvalidValue):
                    await store.claim_task("r", "t", "w", ttl=ttl)
