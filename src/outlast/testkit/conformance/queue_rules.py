"""Conformance of a queue: policies change at run time, and statistics show its state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from outlast.errors import InvalidValue, UsageError
from outlast.model.queue_policy import KEPT_CHANGES, QueuePolicy, Rate
from outlast.model.run_contents import Task
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import QueueSuite, task
from outlast.testkit.conformance.queue_policies import (
    RENDER,
    SCOPE,
    TRAIN,
    keyed,
    taken,
)

WRONG: dict[str, QueuePolicy] = {
    "no queue": QueuePolicy(queue=""),
    "a slash": QueuePolicy(queue="gpu/render"),
    "a control character": QueuePolicy(queue="a\nb"),
    "nothing at once": QueuePolicy(queue=SCOPE, concurrency=0),
    "less than nothing": QueuePolicy(queue=SCOPE, concurrency=-1),
    "nothing of a key": QueuePolicy(queue=SCOPE, key_concurrency=0),
    "a rate of nothing": QueuePolicy(queue=SCOPE, rate=Rate(0, 1.0)),
    "a rate in no time": QueuePolicy(queue=SCOPE, rate=Rate(1, 0.0)),
    "a rate for ever": QueuePolicy(queue=SCOPE, key_rate=Rate(1, float("inf"))),
    "a rate of not a number": QueuePolicy(queue=SCOPE, key_rate=Rate(1, float("nan"))),
    "a rate over the finest clock": QueuePolicy(queue=SCOPE, rate=Rate(1_000_000, 0.001)),
    "a weight of nothing": QueuePolicy(queue=SCOPE, weights={"a": 0}),
    "a negative weight": QueuePolicy(queue=SCOPE, weights={"a": -1.0}),
    "more weights than a take should read": QueuePolicy(
        queue=SCOPE, weights={f"tenant {number}": 2.0 for number in range(10_001)}
    ),
    "ageing in no time": QueuePolicy(queue=SCOPE, ageing=0.0),
    "half a task": QueuePolicy(queue=SCOPE, concurrency=2.5),  # type: ignore[arg-type]
    "a limit in words": QueuePolicy(queue=SCOPE, key_concurrency="5"),  # type: ignore[arg-type]
    "half a pause": QueuePolicy(queue=SCOPE, paused="no"),  # type: ignore[arg-type]
    "half a start": QueuePolicy(queue=SCOPE, rate=Rate(1.5)),  # type: ignore[arg-type]
}


class Rules(QueueSuite):
    """Rules that are written, changed and dropped; what people see of a queue."""

    # -- changing -----------------------------------------------------------------------------

    async def test_a_pause(self, queue: Queue) -> None:
        """Nothing begins, for anybody, from the next take on; what is under way can end."""
        self.needs("policies")
        await queue.enqueue(RENDER, [*keyed("a", 3), task("p")])
        [held] = await taken(queue)
        await queue.set_policy(QueuePolicy(queue=SCOPE, paused=True), by="test")
        assert await taken(queue, 9, owner="other") == []
        await queue.ack(held.claim)
        await queue.set_policy(QueuePolicy(queue=SCOPE), by="test")
        assert len(await taken(queue, 9)) == 3

    @pytest.mark.proves("I22")
    async def test_rules_change_at_run_time(self, queue: Queue) -> None:
        """A limit that is raised lets more begin at once; one that is lowered takes nothing away
        from tasks that have started; policies that are dropped limit nothing."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=1), by="test")
        await queue.enqueue(RENDER, keyed("a", 12))
        assert len(await taken(queue, 20)) == 1
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=4), by="test")
        more = await taken(queue, 20)
        assert len(more) == 3
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=2), by="test")
        await queue.ack(more[0].claim)
        assert await taken(queue, 20) == []
        await queue.drop_policy(SCOPE, by="test")
        assert len(await taken(queue, 20)) == 8

    async def test_rules_of_one_queue_are_not_anothers(self, queue: Queue) -> None:
        """Names that begin alike are different queues."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue="gp", paused=True), by="test")
        await queue.set_policy(QueuePolicy(queue="gpu-2", concurrency=1), by="test")
        for name in (RENDER, "gpu", "gpu-2/x", "gpu0"):
            await queue.enqueue(name, [task(f"{name}-{n}", key="k") for n in range(2)])
        assert len(await taken(queue, 9, ("gpu", RENDER, "gpu-2/x", "gpu0"))) == 7

    async def test_what_was_set_is_told(self, queue: Queue) -> None:
        """The rules as they are, and who changed them."""
        self.needs("policies")
        full = QueuePolicy(
            queue=SCOPE,
            concurrency=3,
            key_concurrency=2,
            rate=Rate(5, 1.5),
            key_rate=Rate(1),
            weights={"ä": 2.0},
            ageing=10.0,
            paused=True,
        )
        await queue.set_policy(full, by="ann")
        await queue.set_policy(QueuePolicy(queue="other"), by="bob")
        await queue.drop_policy("other", by="cem")
        assert await queue.policies() == [full]
        changes = await queue.policy_changes("other")
        assert [(one.by, one.policy) for one in changes] == [
            ("cem", None),
            ("bob", QueuePolicy(queue="other")),
        ]
        assert changes[0].at >= changes[1].at
        assert await queue.policy_changes(SCOPE, limit=1) == (await queue.policy_changes(SCOPE))[:1]

    async def test_a_restart_undoes_nothing(self, queue: Queue) -> None:
        """Code that says what it said before leaves an operator's change alone; code that says
        something new is heard."""
        self.needs("policies")
        await queue.declare_policy(QueuePolicy(queue=SCOPE, concurrency=3))
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=1), by="ops")
        await queue.declare_policy(QueuePolicy(queue=SCOPE, concurrency=3))
        assert await queue.policies() == [QueuePolicy(queue=SCOPE, concurrency=1)]
        await queue.declare_policy(QueuePolicy(queue=SCOPE, concurrency=5))
        assert await queue.policies() == [QueuePolicy(queue=SCOPE, concurrency=5)]
        assert [one.by for one in await queue.policy_changes(SCOPE)] == ["code", "ops", "code"]

    @pytest.mark.proves("I22")
    async def test_changes_at_once_are_all_kept(self, queue: Queue) -> None:
        """Of many concurrent changes of one rule each, none undoes another."""
        self.needs("policies")
        names = [f"k{number}" for number in range(8)]

        def heavier(name: str) -> Callable[[QueuePolicy], QueuePolicy]:
            return lambda policy: replace(policy, weights={**policy.weights, name: 2.0})

        await asyncio.gather(
            queue.change_policy(SCOPE, lambda policy: replace(policy, paused=True), by="ops"),
            queue.change_policy(SCOPE, lambda policy: replace(policy, concurrency=5), by="ops"),
            *(queue.change_policy(SCOPE, heavier(name), by=name) for name in names),
        )
        whole = QueuePolicy(
            queue=SCOPE, paused=True, concurrency=5, weights=dict.fromkeys(names, 2.0)
        )
        assert await queue.policies() == [whole]
        assert len(await queue.policy_changes(SCOPE)) == 10

    async def test_new_code_and_a_pause_at_once(self, queue: Queue) -> None:
        """Whichever is first, the queue has what the code says and is paused."""
        self.needs("policies")
        for round in range(1, 6):
            await queue.set_policy(QueuePolicy(queue=SCOPE), by="test")
            await asyncio.gather(
                queue.declare_policy(QueuePolicy(queue=SCOPE, concurrency=round)),
                queue.change_policy(SCOPE, lambda policy: replace(policy, paused=True), by="ops"),
            )
            assert await queue.policies() == [
                QueuePolicy(queue=SCOPE, concurrency=round, paused=True)
            ]

    async def test_the_record_of_changes_has_an_end(self, queue: Queue) -> None:
        """The last ones stay, those of another queue too."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue="other"), by="test")
        for number in range(KEPT_CHANGES + 5):
            await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=number + 1), by="test")
        changes = await queue.policy_changes(SCOPE, limit=KEPT_CHANGES + 100)
        assert [one.policy.concurrency for one in changes if one.policy] == [
            number + 1 for number in reversed(range(5, KEPT_CHANGES + 5))
        ]
        assert len(await queue.policy_changes("other")) == 1

    @pytest.mark.parametrize("policy", WRONG.values(), ids=WRONG)
    async def test_impossible_rules(self, queue: Queue, policy: QueuePolicy) -> None:
        """They are refused where they are written, and nothing has changed."""
        self.needs("policies")
        with pytest.raises(UsageError):
            await queue.set_policy(policy, by="test")
        assert await queue.policies() == []

    @pytest.mark.parametrize("key", ["k" * 600, "k" * 10_000_000, "é" * 300, "a\nb"])
    async def test_impossible_keys(self, queue: Queue, key: str) -> None:
        """A key is an id, not a document."""
        self.needs("policies")
        with pytest.raises(UsageError):
            await queue.enqueue(RENDER, [task("t", key=key)])
        assert await taken(queue) == []

    # -- seeing -------------------------------------------------------------------------------

    async def test_dead_tasks_keep_their_key(self, queue: Queue) -> None:
        """Redriven, they stand in their old line."""
        self.needs("policies")
        await queue.enqueue(RENDER, keyed("a", 1))
        [held] = await taken(queue)
        await queue.nack(held.claim, requeue=False)
        assert [dead.task.key for dead in await queue.dead(RENDER)] == ["a"]
        await queue.redrive(RENDER)
        [again] = await taken(queue)
        assert (again.task.id, again.task.key) == ("a0", "a")

    async def test_how_a_queue_stands(self, queue: Queue) -> None:
        """Ready, delayed, in flight, dead, since when, and which rule is in the way."""
        self.needs("policies")
        policy = QueuePolicy(queue=SCOPE, concurrency=3, key_concurrency=1)
        await queue.set_policy(policy, by="test")
        await queue.enqueue(TRAIN, [task("doomed")])
        [doomed] = await taken(queue, 1, (TRAIN,))
        await queue.nack(doomed.claim, requeue=False)
        await queue.enqueue(RENDER, [*keyed("a", 4), *keyed("b", 1)])
        created = self.now(queue)
        await self.advance(queue, 10)
        await queue.enqueue(TRAIN, [task("later")], delay=1000)
        await taken(queue, 1)
        stats = await queue.stats(SCOPE)
        assert (stats.ready, stats.delayed, stats.in_flight, stats.dead) == (4, 1, 1, 1)
        assert stats.oldest is not None
        assert abs((stats.oldest - created).total_seconds()) < 5
        assert (stats.policy, stats.blocked_by) == (policy, None)
        by_key = {one.key: one for one in stats.keys}
        assert (by_key["a"].ready, by_key["a"].in_flight) == (3, 1)
        assert by_key["a"].blocked_by == "key_concurrency"
        assert (by_key["b"].ready, by_key["b"].blocked_by) == (1, None)
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=1), by="test")
        assert (await queue.stats(SCOPE)).blocked_by == "concurrency"
        await queue.set_policy(QueuePolicy(queue=SCOPE, paused=True), by="test")
        assert (await queue.stats(SCOPE)).blocked_by == "paused"
        empty = await queue.stats("nothing")
        assert (empty.ready, empty.in_flight, empty.keys) == (0, 0, ())
        with pytest.raises(InvalidValue):
            await queue.stats("a/b")

    @pytest.mark.parametrize("key", ["", "k"])
    async def test_more_than_is_counted(self, queue: Queue, key: str) -> None:
        """A number is exact, or says that there is more; what is delayed hides nothing that is ready."""
        self.needs("policies")
        first = self.now(queue)
        await queue.enqueue(RENDER, [task("old", key=f"{key}0" if key else "", priority=9)])
        await self.advance(queue, 10)

        def many(name: str, count: int, **fields: object) -> list[Task]:
            return [
                task(f"{name}{n}", key=f"{key}{n}" if key else "", priority=n % 7, **fields)
                for n in range(count)
            ]

        await queue.enqueue(RENDER, many("held", 25))
        held = await taken(queue, 26)
        await queue.nack(next(one.claim for one in held if one.task.id == "old"))
        await queue.enqueue(RENDER, many("later", 40), delay=1000)
        await queue.enqueue(RENDER, many("dead", 3, kind="doomed"))
        for one in await taken(queue, 4):
            await queue.nack(one.claim, requeue=one.task.kind != "doomed")
        await self.advance(queue, 10)
        await queue.enqueue(TRAIN, many("ready", 30))
        truth = {"ready": 31, "delayed": 40, "in_flight": 25, "dead": 3}
        for counted in (5, 20, 25, 1000):
            stats = await queue.stats(SCOPE, counted=counted)
            for name, number in truth.items():
                counted_as = getattr(stats, name)
                if name in stats.at_least:
                    assert counted_as <= number, (name, counted, counted_as)
                    assert stats.said(name) == f"{counted_as}+"
                else:
                    assert counted_as == number, (name, counted, counted_as)
            assert "dead" not in stats.at_least
            if "oldest" not in stats.at_least:
                assert stats.oldest is not None
                assert abs((stats.oldest - first).total_seconds() - 10) < 5
        whole = await queue.stats(SCOPE)
        assert whole.at_least == ()
        assert sum(one.ready for one in whole.keys) == (31 if key else 0)

    async def test_when_to_look_again(self, queue: Queue) -> None:
        """The next time at which something may be ready by time alone."""
        self.needs("policies")
        assert await queue.next_ready_at([RENDER]) is None
        for tasks, delay in ((keyed("a", 1), 500), ([task("p", priority=3)], 300)):
            await queue.enqueue(RENDER, tasks, delay=delay)
            await taken(queue)
            found = await queue.next_ready_at([RENDER])
            assert found is not None
            assert abs((found - self.now(queue)).total_seconds() - delay) < 5
        await queue.set_policy(QueuePolicy(queue=SCOPE, rate=Rate(1, 20.0)), by="test")
        await queue.enqueue(RENDER, [task("q"), task("r")])
        [held] = await taken(queue, 5)
        found = await queue.next_ready_at([RENDER])
        assert found is not None
        assert abs((found - self.now(queue)).total_seconds() - 20) < 5
        await queue.ack(held.claim)
