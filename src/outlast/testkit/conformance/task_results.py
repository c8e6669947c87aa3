"""Task results: tasks are put and finished as parts of a commit, each result once."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import Conflict, Fenced, InvalidCommit, InvalidId, NotFound
from outlast.model import Claim, Commit
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract
from outlast.testkit.conformance.scenario import TTL, begin, done, events, refused, unchanged
from outlast.testkit.conformance.tasks import available, hold, put, task


class TaskResults(StoreContract, needs=(Capability.TASKS,)):
    """Putting and finishing tasks as parts of a commit."""

    @pytest.mark.proves("I12", "C-10")
    async def test_tasks_are_put_with_their_commit_or_not_at_all(self, store: Store) -> None:
        """The intent in the history and the task in the queue are one."""
        await begin(store, "r")
        stale = Commit(run_id="r", expected=9, tasks=(task("never"),))
        await refused(store, stale, Conflict)
        await done(store, Commit(run_id="r", events=events("r", 1), tasks=(task("t"),)))
        assert await available(store) == ["t"]

    @pytest.mark.proves("M-23", "S-17")
    async def test_a_task_put_again_is_the_same_task(self, store: Store) -> None:
        """An id that is there is left alone, also while it is claimed."""
        await begin(store, "r")
        await put(store, task("t", input=Raw(b"1")))
        claim = await hold(store, "t", ttl=TTL)
        await put(store, task("t", input=Raw(b"2")))
        assert await available(store) == []
        await store.give_back(claim)
        assert [one.input for one in await store.find_available_tasks(limit=9)] == [Raw(b"1")]

    @pytest.mark.proves("I27")
    async def test_tasks_of_two_runs_may_share_an_id(self, store: Store) -> None:
        """A task is named by its run and its id together."""
        for id in ("r", "s"):
            await begin(store, id)
        await put(store, task("t", "r"), task("t", "s"))
        await hold(store, "t")
        (left,) = await store.find_available_tasks(limit=9)
        assert left.run_id == "s"
        await done(store, Commit(run_id="r", drops=("t",)))
        assert await available(store) == ["t"]

    @pytest.mark.proves("I27", "I7")
    async def test_finishing_a_task_leaves_its_namesake_in_another_queue(
        self, store: Store
    ) -> None:
        """A claim names the queue too: what is finished is what was claimed."""
        await begin(store, "r")
        await put(store, task("t", queue="a"), task("t", queue="b"))
        claim = await hold(store, "t", ttl=TTL)
        await done(store, Commit(run_id="r", finishes=(claim,)))
        (left,) = await store.find_available_tasks(limit=9)
        assert {left.queue, claim.queue} == {"a", "b"}

    @pytest.mark.proves("I7", "S-17", "I12")
    async def test_a_task_is_finished_under_its_claim(self, store: Store) -> None:
        """The commit that records a result removes the task; it cannot be finished twice."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        finish = Commit(run_id="r", events=events("r", 1), finishes=(claim,))
        await done(store, finish)
        await self.advance(store, 2 * TTL)
        assert await available(store) == []
        again = Commit(run_id="r", events=events("r", 1), finishes=(claim,))
        await refused(store, again, Fenced)

    @pytest.mark.proves("I7", "I5", "S-17", "I12")
    @pytest.mark.parametrize("state", ["superseded", "released", "dropped"])
    async def test_a_stale_task_claim_fences_the_whole_commit(
        self, store: Store, state: str
    ) -> None:
        """Nothing of a commit is written if one of the tasks it finishes was lost."""
        await begin(store, "r")
        await put(store, task("lost"), task("held"))
        lost = await hold(store, "lost", ttl=TTL)
        if state == "superseded":
            await self.advance(store, 2 * TTL)
            await hold(store, "lost", owner="other", ttl=TTL)
        elif state == "released":
            await store.release([lost])
        else:
            await done(store, Commit(run_id="r", drops=("lost",)))
        held = await hold(store, "held", ttl=TTL)
        late = Commit(run_id="r", events=events("r", 1), finishes=(held, lost))
        await refused(store, late, Fenced)
        assert await store.release([held]) == [True]

    @pytest.mark.proves("C-28", "I7")
    async def test_an_expired_task_that_nobody_took_can_be_finished(self, store: Store) -> None:
        """The work was done and no other worker has claimed it: the result counts."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        await self.advance(store, 2 * TTL)
        await done(store, Commit(run_id="r", events=events("r", 1), finishes=(claim,)))
        assert await available(store) == []

    @pytest.mark.proves("I17", "I12")
    async def test_the_run_drops_its_tasks_whoever_holds_them(self, store: Store) -> None:
        """`drops` removes tasks by id; an unknown one is no error; other tasks stay."""
        await begin(store, "r")
        await put(store, task("a"), task("b"), task("c"))
        claim = await hold(store, "a", ttl=TTL)
        await done(store, Commit(run_id="r", drops=("a", "b", "unknown")))
        assert await available(store) == ["c"]
        assert await store.renew([claim], TTL) == [None]

    @pytest.mark.proves("S-23", "S-14", "I7")
    async def test_a_result_is_recorded_in_one_step(self, store: Store) -> None:
        """`save_task_result` appends the completed step and removes the task."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        assert await store.save_task_result(claim, Raw(b'{"ok": true}'), duration_ns=7) == 1
        (recorded,) = await store.history("r")
        assert (recorded.type, recorded.step_name) == ("step.completed", "t")
        assert (recorded.output, recorded.data) == (
            Raw(b'{"ok": true}'),
            Raw(b'{"duration_ns":7}'),
        )
        await self.advance(store, 2 * TTL)
        assert await available(store) == []
        with pytest.raises(Fenced):
            await store.save_task_result(claim, Raw(b"2"))
        assert len(await store.history("r")) == 1

    @pytest.mark.proves("S-23", "S-15")
    async def test_parallel_branches_overwrite_nothing(self, store: Store) -> None:
        """The results of several tasks of one run all stand, each by its worker."""
        await begin(store, "r")
        ids = ["a", "b", "c"]
        await put(store, *(task(id) for id in ids))
        claims = [await hold(store, id, owner=f"worker-{id}", ttl=TTL) for id in ids]
        for claim in reversed(claims):
            await store.save_task_result(claim, Raw(b'"%s"' % (claim.task_id or "").encode()))
        recorded = {one.step_name: bytes(one.output or b"") for one in await store.history("r")}
        assert recorded == {"a": b'"a"', "b": b'"b"', "c": b'"c"'}

    @pytest.mark.proves("S-23", "C-06")
    async def test_a_result_for_a_run_that_is_gone(self, store: Store) -> None:
        """`NotFound`, and no run is made of it."""
        await begin(store, "r")
        await put(store, task("t"))
        claim = await hold(store, "t", ttl=TTL)
        lost = msgspec.structs.replace(claim, run_id="unknown")
        with pytest.raises(NotFound):
            await store.save_task_result(lost, Raw(b"1"))
        assert not await store.exists("unknown")

    @pytest.mark.proves("K-15")
    async def test_bad_tasks_are_refused(self, store: Store) -> None:
        """A task has a name and a queue, and belongs to the run whose commit brings it."""
        await begin(store, "r")
        async with unchanged(store, "r", "s"):
            for bad in (task(""), task("t", queue=""), task("t", queue="a\nb")):
                with pytest.raises(InvalidId):
                    await store.commit([Commit(run_id="r", tasks=(bad,))])
            with pytest.raises(InvalidCommit):
                await store.commit([Commit(run_id="r", tasks=(task("t", "s"),))])
            stray = Claim(owner="w", token=1, claimed_at=await store.now(), run_id="r")
            with pytest.raises(InvalidCommit):
                await store.commit([Commit(run_id="r", finishes=(stray,))])
