"""Sends: items that travel with a commit or with the end of a task, and over lives of a run."""

from __future__ import annotations

from contextlib import suppress

import pytest
from msgspec.structs import replace

from outlast.errors import Conflict, Fenced, RunExists
from outlast.model import Commit, Creation, Receipt, Run, Task
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    TTL,
    begin,
    claimed_ids,
    deliver,
    done,
    events,
    finish,
    refused,
    signal,
    unchanged,
)


class Sends(StoreContract, needs=(Capability.INBOX,)):
    """One step for what belongs together."""

    # -- sends of a commit --------------------------------------------------------------------

    @pytest.mark.proves("I12", "C-17")
    async def test_sends_travel_with_their_commit_or_not_at_all(self, store: Store) -> None:
        """A commit's items arrive if it is written, and only then."""
        for id in ("sender", "a", "b"):
            await begin(store, id)
        sends = (signal("a", "one"), signal("b", "two"))
        await refused(store, Commit(run_id="sender", expected=9, sends=sends), Conflict)
        assert await store.inbox("a") == []
        answer = await done(store, Commit(run_id="sender", events=events("sender", 1), sends=sends))
        assert answer.undelivered == ()
        assert [one.name for one in await store.inbox("a")] == ["one"]
        assert [one.name for one in await store.inbox("b")] == ["two"]

    @pytest.mark.proves("I12", "I16")
    async def test_a_run_is_created_with_its_first_item(self, store: Store) -> None:
        """An item for the run that the commit creates arrives with it; a refused creation sends nothing."""
        new = Commit(run_id="r", create=Run(id="r"), sends=(signal("r", "one"),))
        answer = await done(store, new)
        assert answer.undelivered == ()
        assert [(one.name, one.number) for one in await store.inbox("r")] == [("one", 1)]
        assert (await store.get("r")).runnable_at is not None
        second = Commit(run_id="r", create=Run(id="r"), sends=(signal("r", "two"),))
        await refused(store, second, RunExists)
        assert len(await store.inbox("r")) == 1

    @pytest.mark.proves("C-03", "I16")
    async def test_a_commit_made_again_sends_nothing_again(self, store: Store) -> None:
        """The retry of a commit adds no item."""
        for id in ("sender", "r"):
            await begin(store, id)
        commit = Commit(run_id="sender", sends=(signal("r"),))
        await done(store, commit)
        await done(store, commit)
        assert len(await store.inbox("r")) == 1

    @pytest.mark.proves("I16", "I21")
    async def test_what_cannot_be_delivered_is_reported(self, store: Store) -> None:
        """A receiver that is gone, ended or of another life is no error for the sender's commit."""
        for id in ("sender", "open", "ended"):
            await begin(store, id)
        await finish(store, "ended")
        sends = (
            signal("gone", id="1"),
            signal("open", id="2"),
            signal("ended", id="3"),
            signal("open", id="4", uid="another life"),
        )
        commit = Commit(run_id="sender", events=events("sender", 1), sends=sends)
        answer = await done(store, commit)
        assert (answer.undelivered, answer.sequence) == (("1", "3", "4"), 1)
        assert [one.id for one in await store.inbox("open")] == ["2"]
        assert await store.inbox("ended") == []

    @pytest.mark.proves("I16", "M-23")
    async def test_an_item_that_was_taken_before_counts_as_delivered(self, store: Store) -> None:
        """A duplicate from a commit is neither doubled nor reported."""
        for id in ("sender", "r"):
            await begin(store, id)
        once = signal("r", id="pay-7")
        await deliver(store, once)
        assert (await done(store, Commit(run_id="sender", sends=(once,)))).undelivered == ()
        assert len(await store.inbox("r")) == 1

    # -- over lives ---------------------------------------------------------------------------

    @needs(Capability.DELETE)
    @pytest.mark.proves("I16", "C-17")
    async def test_an_inbox_can_be_carried_into_a_new_life(self, store: Store) -> None:
        """Continue-as-new loses no signal and takes none twice; numbers go on."""
        await begin(store, "r")
        for id in ("1", "2", "3"):
            await deliver(store, signal("r", id=id))
        replacing = Commit(
            run_id="r",
            create=Run(id="r"),
            creation=Creation.REPLACE,
            carry_inbox=True,
            consumes=(1,),
            seen=1,
        )
        await done(store, replacing)
        assert [(one.number, one.id) for one in await store.inbox("r")] == [(2, "2"), (3, "3")]
        assert await deliver(store, signal("r", id="1")) == Receipt(1, again=True)
        assert await deliver(store, signal("r", id="4")) == Receipt(4)
        assert await claimed_ids(store) == ["r"]

    @needs(Capability.DELETE)
    @pytest.mark.proves("I25", "C-17")
    async def test_a_new_life_begins_with_an_empty_inbox(self, store: Store) -> None:
        """Without carrying over, items and their ids belong to the life that is gone."""
        await begin(store, "r")
        await deliver(store, signal("r", id="1"))
        replacing = Commit(run_id="r", create=Run(id="r"), creation=Creation.REPLACE)
        await done(store, replacing)
        assert await store.inbox("r") == []
        assert await deliver(store, signal("r", id="1")) == Receipt(1)

    # -- results of tasks ---------------------------------------------------------------------

    @needs(Capability.TASKS)
    @pytest.mark.proves("I7", "I12", "S-17")
    async def test_a_result_is_sent_and_its_task_removed_in_one_step(self, store: Store) -> None:
        """The worker's item and the end of its task are one."""
        await begin(store, "r")
        await done(store, Commit(run_id="r", tasks=(Task(id="t", run_id="r"),)))
        claim = await store.claim_task("r", "t", "worker", ttl=TTL)
        assert claim is not None
        assert await store.send([signal("r", kind="result")], finishes=[claim]) == [Receipt(1)]
        await self.advance(store, 2 * TTL)
        assert await store.find_available_tasks(limit=9) == []
        with pytest.raises(Fenced):
            await store.send([signal("r", kind="result")], finishes=[claim])

    @needs(Capability.TASKS)
    @pytest.mark.proves("I22")
    async def test_a_claim_is_kept_for_good_only_with_its_item(self, store: Store) -> None:
        """Where the run refuses the item, the lease ends as it would have, and nothing is held for
        nobody."""
        for run_id in ("taken", "refused"):
            await begin(store, run_id)
            await done(store, Commit(run_id=run_id, tasks=(Task(id="t", run_id=run_id),)))
        claims = [await store.claim_task(id, "t", "w", ttl=TTL) for id in ("taken", "refused")]
        keeps = [claim for claim in claims if claim is not None]
        sends = [signal("taken"), replace(signal("refused"), uid="another life")]
        first, second = await store.send(sends, keeps=keeps)
        assert first == Receipt(1)
        assert isinstance(second, Fenced)
        await self.advance(store, 2 * TTL)
        assert [one.run_id for one in await store.find_available_tasks(limit=9)] == ["refused"]

    @needs(Capability.TASKS)
    @pytest.mark.proves("I7", "I5", "S-17")
    async def test_a_worker_that_lost_its_task_sends_no_result(self, store: Store) -> None:
        """If one of the claims was lost, nothing is sent and no task is removed."""
        await begin(store, "r")
        own = tuple(Task(id=id, run_id="r") for id in ("lost", "held"))
        await done(store, Commit(run_id="r", tasks=own))
        lost = await store.claim_task("r", "lost", "slow", ttl=TTL)
        assert lost is not None
        await self.advance(store, 2 * TTL)
        assert await store.claim_task("r", "lost", "fast", ttl=TTL) is not None
        held = await store.claim_task("r", "held", "slow", ttl=TTL)
        assert held is not None
        async with unchanged(store, "r"):
            with pytest.raises(Fenced):
                await store.send([signal("r", kind="result")], finishes=[held, lost])
        await store.give_back(held)
        assert [task.id for task in await store.find_available_tasks(limit=9)] == ["held"]

    @needs(Capability.TASKS)
    @pytest.mark.proves("I7", "I12", "S-17")
    async def test_results_of_many_runs_in_one_call(self, store: Store) -> None:
        """Each arrives with the end of its own task, wherever its run lives. If one of the claims
        was lost, sending the others again, one by one, loses none and doubles none."""
        runs = [f"r{n}" for n in range(9)]
        claims = []
        for run_id in runs:
            await begin(store, run_id)
            await done(store, Commit(run_id=run_id, tasks=(Task(id="t", run_id=run_id),)))
            claim = await store.claim_task(run_id, "t", "worker", ttl=TTL)
            assert claim is not None
            claims.append(claim)
        sends = [signal(run_id, kind="result", id=f"of {run_id}") for run_id in runs]
        assert await store.send(sends[:4], finishes=claims[:4]) == [Receipt(1)] * 4
        await store.give_back(claims[6])
        with pytest.raises(Fenced):
            await store.send(sends[4:], finishes=claims[4:])
        for send, claim in zip(sends[4:], claims[4:], strict=True):
            with suppress(Fenced):
                await store.send([send], finishes=[claim])
        inboxes = {run_id: [one.id for one in await store.inbox(run_id)] for run_id in runs}
        assert inboxes == {run_id: [f"of {run_id}"] if run_id != "r6" else [] for run_id in runs}
        left = await store.find_available_tasks(limit=9)
        assert [task.run_id for task in left] == ["r6"]
