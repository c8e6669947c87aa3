"""What concerns a store as a whole: counts, workers, and what a move to another store has to know."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import msgspec
import pytest
from msgspec import Raw

from outlast.errors import InvalidCommit, InvalidId, InvalidValue
from outlast.model import (
    Change,
    Commit,
    Creation,
    DeadTask,
    Fact,
    Run,
    RunQuery,
    Start,
    Status,
    Task,
    Worker,
)
from outlast.model.run_contents import BoundKey, HeldTask, RunContents
from outlast.ports import Capability, Store
from outlast.testkit.conformance.contract import StoreContract, needs
from outlast.testkit.conformance.scenario import (
    begin,
    deliver,
    done,
    finish,
    gathered,
    signal,
    take,
)

HOURS = 3600.0


class Counts(StoreContract, needs=(Capability.FIND,)):
    """`counts`: how many runs, by workflow and status."""

    async def _agree(self, store: Store) -> dict[tuple[str, Status], int]:
        counted = dict(await store.counts())
        found = await gathered(store.find_all(RunQuery()))
        assert counted == Counter((run.workflow, run.status) for run in found)
        return counted

    @pytest.mark.proves("I13")
    async def test_an_empty_store_counts_nothing(self, store: Store) -> None:
        """No run, no pair."""
        assert await store.counts() == {}

    @pytest.mark.proves("I13")
    async def test_counts_follow_every_change(self, store: Store) -> None:
        """Runs that begin, change status or workflow, and end are counted where they are now."""
        for number in range(3):
            await begin(store, f"a-{number}", workflow="a")
        await begin(store, "b-0", workflow="b", status=Status.RUNNING)
        assert await self._agree(store) == {
            ("a", Status.PENDING): 3,
            ("b", Status.RUNNING): 1,
        }
        await done(store, Commit(run_id="a-0", change=Change(status=Status.WAITING)))
        await done(store, Commit(run_id="a-1", change=Change(workflow="b")))
        await done(store, Commit(run_id="a-2", change=Change(status=Status.PENDING, error="x")))
        await finish(store, "b-0")
        assert await self._agree(store) == {
            ("a", Status.WAITING): 1,
            ("a", Status.PENDING): 1,
            ("b", Status.PENDING): 1,
            ("b", Status.COMPLETED): 1,
        }

    @pytest.mark.proves("I13")
    async def test_a_refused_commit_is_not_counted(self, store: Store) -> None:
        """What was not written has changed no count."""
        await begin(store, "a", workflow="a")
        change = Change(status=Status.FAILED)
        await store.commit([Commit(run_id="a", expected=7, change=change)])
        await store.commit([Commit(run_id="a", create=Run(id="a", workflow="other"))])
        assert await self._agree(store) == {("a", Status.PENDING): 1}

    @pytest.mark.proves("I13", "I25")
    @needs(Capability.DELETE, Capability.CHILDREN)
    async def test_children_and_what_is_deleted(self, store: Store) -> None:
        """A tree that goes, or a life that is replaced, is counted no more; its open children are."""
        child = Start(Run(id="a~c", parent="a", workflow="child"))
        await begin(store, "a", workflow="a")
        await begin(store, "b", workflow="b")
        await done(store, Commit(run_id="a", starts=(child,)))
        assert (await self._agree(store))["child", Status.PENDING] == 1
        new = Run(id="a", workflow="renamed", status=Status.RUNNING)
        await done(store, Commit(run_id="a", create=new, creation=Creation.REPLACE))
        assert await self._agree(store) == {
            ("renamed", Status.RUNNING): 1,
            ("b", Status.PENDING): 1,
            ("child", Status.PENDING): 1,
        }
        await store.delete("a")
        await store.delete("b")
        assert await store.counts() == {}

    @pytest.mark.proves("I13")
    async def test_a_batch_is_counted_as_a_whole(self, store: Store) -> None:
        """Many runs at once, with names that could be taken for one another."""
        names = ["w", "w\x1a", "W", "wé", "", "w w", "😀"]
        await store.commit(
            [
                Commit(run_id=f"r-{n}", create=Run(id=f"r-{n}", workflow=names[n % 7]))
                for n in range(700)
            ]
        )
        counted = await self._agree(store)
        assert counted == {(name, Status.PENDING): 100 for name in names}
        moves = [
            Commit(run_id=f"r-{n}", change=Change(status=Status.RUNNING)) for n in range(0, 700, 2)
        ]
        await store.commit(moves)
        assert sum((await self._agree(store)).values()) == 700


class Workers(StoreContract, needs=(Capability.WORKERS,)):
    """`heartbeat`, `leave`, `workers`: who is alive."""

    @pytest.mark.proves("I24")
    async def test_a_worker_is_listed_as_it_said(self, store: Store) -> None:
        """Its word comes back, with the times of the store."""
        said = Worker(
            owner="app-1",
            host="höst",
            pid=7,
            workflows=("a", "b"),
            queues=("gpu",),
            runs=3,
            tasks=1,
        )
        await store.heartbeat(said, 60)
        (known,) = await store.workers()
        now = await store.now()
        assert (known.owner, known.host, known.pid) == ("app-1", "höst", 7)
        assert (known.workflows, known.queues) == (("a", "b"), ("gpu",))
        assert (known.runs, known.tasks) == (3, 1)
        assert known.started_at == known.seen_at
        assert known.until - known.seen_at == timedelta(seconds=60)
        assert known.is_alive(now)

    @pytest.mark.proves("I24")
    async def test_a_later_word_replaces_the_one_before(self, store: Store) -> None:
        """Since when it lives stays; all else is new."""
        await store.heartbeat(Worker(owner="app-1", runs=1), 60)
        (first,) = await store.workers()
        await self.advance(store, 30)
        await store.heartbeat(Worker(owner="app-1", runs=2), 60)
        (second,) = await store.workers()
        assert second.started_at == first.started_at
        assert second.seen_at >= first.seen_at + timedelta(seconds=30)
        assert second.runs == 2

    @pytest.mark.proves("I24")
    async def test_who_leaves_is_listed_no_more(self, store: Store) -> None:
        """True once, then False; others stay."""
        await store.heartbeat(Worker(owner="a"), 60)
        await store.heartbeat(Worker(owner="b"), 60)
        assert await store.leave("a")
        assert not await store.leave("a")
        assert [one.owner for one in await store.workers()] == ["b"]

    @pytest.mark.proves("I24")
    async def test_who_falls_silent_is_listed_as_dead_for_a_day(self, store: Store) -> None:
        """Past its time it is not alive, and a day later the next word of another forgets it."""
        await store.heartbeat(Worker(owner="gone"), 60)
        await self.advance(store, 100)
        (known,) = await store.workers()
        assert not known.is_alive(await store.now())
        await store.heartbeat(Worker(owner="here"), 60)
        assert [one.owner for one in await store.workers()] == ["gone", "here"]
        await self.advance(store, 25 * HOURS)
        await store.heartbeat(Worker(owner="here"), 60)
        assert [one.owner for one in await store.workers()] == ["here"]

    @pytest.mark.proves("I24")
    async def test_bad_workers_are_refused(self, store: Store) -> None:
        """No name, or a time that is not possible: nothing is written."""
        with pytest.raises(InvalidId):
            await store.heartbeat(Worker(owner=""), 60)
        with pytest.raises(InvalidValue):
            await store.heartbeat(Worker(owner="a"), 0)
        with pytest.raises(InvalidId):
            await store.leave("")
        assert await store.workers() == []


class Moves(StoreContract, needs=(Capability.MOVE,)):
    """`contents` and `skip_tokens`: what a move to another store has to know and to do."""

    @pytest.mark.proves("I3")
    async def test_an_unknown_run_owns_nothing(self, store: Store) -> None:
        """Empty, not an error."""
        assert await store.contents("nobody") == RunContents()

    @pytest.mark.proves("I16")
    @needs(Capability.INBOX)
    async def test_all_items_a_life_has_taken(self, store: Store) -> None:
        """Consumed or not, in the order in which they came; those of others are not among them."""
        await begin(store, "a")
        await begin(store, "b")
        ids = [f"item-{9 - number}" for number in range(5)]
        for id in ids:
            await deliver(store, signal("a", id=id))
        await deliver(store, signal("b", id="other"))
        await done(store, Commit(run_id="a", consumes=(1, 3)))
        assert (await store.contents("a")).receipts == tuple(ids)

    @pytest.mark.proves("I3")
    @needs(Capability.TASKS)
    async def test_tasks_in_any_state(self, store: Store) -> None:
        """Ready, delayed and in flight; not those of another run, and not those that are done."""
        later = await store.now() + timedelta(hours=5)
        tasks = (
            Task(id="ready", run_id="a", queue="q", step="s", metadata={"x": "1"}),
            Task(id="held", run_id="a", queue="q"),
            Task(id="late", run_id="a", queue="r", run_at=later),
            Task(id="done", run_id="a", queue="q"),
        )
        await begin(store, "a")
        await begin(store, "b")
        await done(store, Commit(run_id="a", tasks=tasks))
        await done(store, Commit(run_id="b", tasks=(Task(id="ready", run_id="b", queue="q"),)))
        held = await store.claim_task("a", "held", "w", ttl=60)
        assert held is not None
        finished = await store.claim_task("a", "done", "w", ttl=60)
        assert finished is not None
        await done(store, Commit(run_id="a", finishes=(finished,)))
        contents = await store.contents("a")
        assert contents.holdings == (HeldTask("held", "q", "w", held.expires_at),)
        owned = contents.tasks
        assert [task.id for task in owned] == ["ready", "held", "late"]
        assert (owned[0].queue, owned[0].step, owned[0].metadata) == ("q", "s", {"x": "1"})
        assert owned[2].run_at == later

    @pytest.mark.proves("I3")
    @needs(Capability.TASKS)
    async def test_a_task_that_died_elsewhere_comes_dead(self, store: Store) -> None:
        """With the commit that brings it, as it died: it is not handed out, it can be redriven, and
        it goes with its run. One that is among the dead already stays as it is."""
        now = await store.now()
        died, put = now - timedelta(hours=2), now - timedelta(hours=3)
        lost = Task(
            id="t", run_id="a", queue="q", step="s", input=Raw(b"[1]"), attempt=3,
            metadata={"x": "1"}, key="acme", priority=2, enqueued_at=put,
        )  # fmt: skip
        dead = DeadTask(lost, "it burns \u2713", died)
        created = await begin(store, "a")
        await done(store, Commit(run_id="a", dead=(dead,)))
        again = DeadTask(msgspec.structs.replace(lost, attempt=9), "again", now)
        await done(store, Commit(run_id="a", dead=(again,)))
        expected = DeadTask(msgspec.structs.replace(lost, uid=created.uid), dead.reason, died)
        assert (await store.contents("a")) == RunContents(dead=(expected,))
        assert await store.find_available_tasks(queue="q", limit=10) == []
        async with store.queue() as queue:
            assert await queue.dead("q") == [expected]
            assert await queue.redrive("q") == 1
        (found,) = await store.find_available_tasks(queue="q", limit=10)
        assert (found.id, found.attempt, found.input) == ("t", 0, Raw(b"[1]"))
        with pytest.raises(InvalidCommit):
            await store.commit([Commit(run_id="b", create=Run(id="b"), dead=(dead,))])
        if Capability.DELETE in store.capabilities:
            await done(store, Commit(run_id="a", dead=(dead,)))
            await store.delete("a")
            assert await store.contents("a") == RunContents()

    @pytest.mark.proves("I3")
    @needs(Capability.KEYS)
    async def test_keys_that_belong_to_a_run(self, store: Store) -> None:
        """By scope and key, whatever the text; not those of another run or of none."""
        await begin(store, "a")
        bound = [BoundKey("start", "k:1%", "v"), BoundKey("{odd} scope:", "k}%é", "ü")]
        for key in bound:
            await store.remember(*key, run_id="a")
        await store.remember("start", "free", "v")
        await store.remember("start", "other", "v", run_id="b")
        assert sorted((await store.contents("a")).keys) == sorted(bound)

    @pytest.mark.proves("I3")
    @needs(Capability.FACTS, Capability.CHILDREN)
    async def test_facts_of_the_tree_at_its_root(self, store: Store) -> None:
        """All that the tree has stored; a child has none of its own."""
        facts = [Fact.of(b"one"), Fact.of(b"two")]
        await begin(store, "a")
        child = Start(Run(id="a~c", parent="a"))
        await done(store, Commit(run_id="a", facts=(facts[0],), starts=(child,)))
        await done(store, Commit(run_id="a~c", facts=(facts[1],)))
        assert (await store.contents("a")).facts == tuple(sorted(fact.hash for fact in facts))
        assert (await store.contents("a~c")).facts == ()

    @pytest.mark.proves("I6")
    async def test_tokens_are_greater_than_those_of_another_store(self, store: Store) -> None:
        """After `skip_tokens` no token is given out that is not greater; never is one lower."""
        await begin(store, "a")
        first = await take(store, "a")
        await store.skip_tokens(first.token + 1000)
        await begin(store, "b")
        second = await take(store, "b")
        assert second.token > first.token + 1000
        await store.skip_tokens(1)
        await begin(store, "c")
        assert (await take(store, "c")).token > second.token
        with pytest.raises(InvalidValue):
            await store.skip_tokens(-1)

    @pytest.mark.proves("I3")
    async def test_a_run_that_ended_elsewhere_keeps_when(self, store: Store) -> None:
        """Creation and end are those that an import brings; nothing wakes it here."""
        now = await store.now()
        created, ended = now - timedelta(days=3), now - timedelta(days=2)
        fields = {"created_at": created, "ended_at": ended}
        await begin(store, "a", status=Status.FAILED, runnable_at=now, **fields)
        run = await store.get("a")
        assert (run.created_at, run.ended_at, run.runnable_at) == (created, ended, None)
        await begin(store, "b", **fields)
        assert (await store.get("b")).ended_at is None
        if Capability.RETENTION in store.capabilities:
            assert await store.expire(now - timedelta(days=1)) == ["a"]
