"""Conformance of a queue: keys that take turns, limits and rates."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from outlast.errors import Fenced
from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.model.run_contents import Delivery, Task
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import LEASE, QueueSuite, asleep, at_once, task

SCOPE, RENDER, TRAIN = "gpu", "gpu/render", "gpu/train"


def keyed(key: str, count: int, *, start: int = 0, **fields: object) -> list[Task]:
    """Tasks of one key, named after it: a0, a1 …"""
    return [task(f"{key}{number}", key=key, **fields) for number in range(start, start + count)]


async def taken(
    queue: Queue, limit: int = 1, queues: Sequence[str] = (RENDER,), *, owner: str = "w"
) -> list[Delivery]:
    """What is handed out now."""
    return await queue.take_many(queues, owner=owner, visibility=LEASE, limit=limit)


async def done(queue: Queue, limit: int = 1, queues: Sequence[str] = (RENDER,)) -> list[Delivery]:
    """What is handed out now, and done at once."""
    deliveries = await taken(queue, limit, queues)
    for one in deliveries:
        await queue.ack(one.claim)
    return deliveries


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    """The tasks, by name."""
    return [one.task.id for one in deliveries]


def keys(deliveries: Sequence[Delivery]) -> Counter[str]:
    """How many of each key."""
    return Counter(one.task.key for one in deliveries)


class Policies(QueueSuite):
    """How much of a queue is under way at once, how often, and in whose turn."""

    # -- turns --------------------------------------------------------------------------------

    @pytest.mark.proves("I22")
    async def test_a_newcomer_waits_for_one_round(self, queue: Queue) -> None:
        """A key with many waiting tasks delays another's first by at most one of its own."""
        self.needs("policies")
        await queue.enqueue(RENDER, keyed("big", 200))
        await taken(queue, 20)
        await queue.enqueue(RENDER, keyed("small", 1))
        assert "small0" in ids(await taken(queue, 2))

    async def test_keys_take_turns(self, queue: Queue) -> None:
        """Whoever has waiting tasks gets the same share, one task at a time or many."""
        self.needs("policies")
        for key in ("a", "b", "c"):
            await queue.enqueue(RENDER, keyed(key, 40))
        many = await taken(queue, 30)
        single = [one for _ in range(30) for one in await taken(queue)]
        assert keys(many) == keys(single) == {"a": 10, "b": 10, "c": 10}
        assert ids([one for one in many if one.task.key == "a"]) == [f"a{n}" for n in range(10)]

    async def test_weights_are_shares(self, queue: Queue) -> None:
        """A key of weight three gets three times as much as others, as long as it has tasks."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, weights={"a": 3.0, "c": 0.5}), by="test")
        for key in ("a", "b", "c"):
            await queue.enqueue(RENDER, keyed(key, 60))
        shares = keys(await taken(queue, 45))
        assert shares == {"a": 30, "b": 10, "c": 5}
        rest = keys([one for _ in range(30) for one in await taken(queue, 10)])
        assert rest == {"a": 30, "b": 50, "c": 55}

    async def test_nobody_saves_up_turns(self, queue: Queue) -> None:
        """A key that had nothing for a while is served as often as the others, not more."""
        self.needs("policies")
        await queue.enqueue(RENDER, [*keyed("a", 60), *keyed("b", 1)])
        await done(queue, 41)
        await queue.enqueue(RENDER, keyed("b", 30, start=1))
        assert keys(await taken(queue, 10)) == {"a": 5, "b": 5}

    async def test_tasks_without_a_key_are_one_more_line(self, queue: Queue) -> None:
        """They share with those that have one, and are not forgotten."""
        self.needs("policies")
        await queue.enqueue(RENDER, [*keyed("a", 20), *(task(f"plain{n}") for n in range(20))])
        assert keys(await taken(queue, 10)) == {"a": 5, "": 5}

    async def test_steps_of_a_queue_share_it(self, queue: Queue) -> None:
        """Tasks of one key stand in one line, whatever their step, each only for who asks for it."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=10), by="test")
        await queue.enqueue(RENDER, [task("r0", priority=1), task("r1", priority=3)])
        await queue.enqueue(TRAIN, [task("t0", priority=2), task("t1", priority=0)])
        await queue.enqueue(RENDER, [task("k0", key="k", priority=5)])
        await queue.enqueue(TRAIN, [task("k1", key="k", priority=4), task("t2", priority=9)])
        assert ids(await taken(queue, 1, (TRAIN,))) == ["t1"]
        both = ids(await taken(queue, 5, (RENDER, TRAIN)))
        assert [id for id in both if id[0] == "k"] == ["k1", "k0"]
        assert [id for id in both if id[0] != "k"] == ["r0", "t0", "r1"]

    async def test_priority_is_within_a_key(self, queue: Queue) -> None:
        """Of one key the most urgent is first; another key's turn is not taken by that."""
        self.needs("policies")
        await queue.enqueue(RENDER, keyed("a", 3, priority=5))
        await queue.enqueue(RENDER, [task("urgent", key="a", priority=-1)])
        await queue.enqueue(RENDER, keyed("b", 2, priority=9))
        got = ids(await taken(queue, 4))
        assert sorted(got) == ["a0", "b0", "b1", "urgent"]
        assert got.index("urgent") < got.index("a0")

    @pytest.mark.parametrize("key", ["", "a"])
    async def test_ageing_starves_nobody(self, queue: Queue, key: str) -> None:
        """A task that has waited long enough goes before a more urgent one that has just come."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, ageing=60.0), by="test")
        await queue.enqueue(RENDER, [task("old", key=key, priority=5)])
        await self.advance(queue, 270)
        await queue.enqueue(RENDER, [task("fresh", key=key, priority=0)])
        assert ids(await done(queue)) == ["fresh"]
        await self.advance(queue, 90)
        await queue.enqueue(RENDER, [task("fresher", key=key, priority=0)])
        assert ids(await taken(queue, 2)) == ["old", "fresher"]

    async def test_without_ageing_the_urgent_go_first(self, queue: Queue) -> None:
        """However long the others have waited."""
        self.needs("policies")
        await queue.enqueue(RENDER, [task("old", key="a", priority=5)])
        await self.advance(queue, 86_400)
        await queue.enqueue(RENDER, [task("fresh", key="a", priority=0)])
        assert ids(await taken(queue, 2)) == ["fresh", "old"]

    async def test_a_delayed_task_keeps_its_key(self, queue: Queue) -> None:
        """It is not handed out before it is due, delays no other task, and is handed out when it is due."""
        self.needs("policies")
        await queue.enqueue(RENDER, keyed("a", 2), delay=100)
        await queue.enqueue(RENDER, keyed("b", 1))
        assert ids(await done(queue, 5)) == ["b0"]
        assert await taken(queue, 5) == []
        await self.advance(queue, 101)
        assert ids(await taken(queue, 5)) == ["a0", "a1"]

    # -- limits -------------------------------------------------------------------------------

    @pytest.mark.proves("I22")
    @pytest.mark.parametrize("key", ["", "a"])
    async def test_a_queue_limit(self, queue: Queue, key: str) -> None:
        """So many at once over all workers, taken one by one or together."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=3), by="test")
        await queue.enqueue(RENDER, [task(f"r{n}", key=key) for n in range(9)])
        await queue.enqueue(TRAIN, [task(f"t{n}", key=key) for n in range(9)])
        first = await taken(queue, 2, owner="one")
        second = await taken(queue, 9, (TRAIN, RENDER), owner="two")
        assert (len(first), len(second)) == (2, 1)
        assert await taken(queue, 9, (TRAIN,), owner="three") == []

    @pytest.mark.proves("I22")
    @pytest.mark.parametrize(
        "policy",
        [QueuePolicy(queue=SCOPE, concurrency=1), QueuePolicy(queue=SCOPE, key_concurrency=1)],
    )
    @pytest.mark.parametrize("end", ["ack", "nack", "bury", "drop", "expire"])
    async def test_every_end_returns_the_place(
        self, queue: Queue, policy: QueuePolicy, end: str
    ) -> None:
        """Done, returned, dead, dropped, or its worker gone: the next one may begin."""
        self.needs("policies")
        await queue.set_policy(policy, by="test")
        await queue.enqueue(RENDER, keyed("a", 2))
        [held] = await taken(queue, 5)
        assert await taken(queue, 5) == []
        match end:
            case "ack":
                await queue.ack(held.claim)
            case "nack":
                await queue.nack(held.claim, delay=500)
            case "bury":
                await queue.nack(held.claim, requeue=False)
            case "drop":
                await queue.nack(held.claim, requeue=False, drop=True)
            case "expire":
                await self.advance(queue, LEASE + 1)
        [following] = await taken(queue, 5)
        assert following.task.id == ("a0" if end == "expire" else "a1")
        assert await taken(queue, 5) == []

    @pytest.mark.proves("I22")
    async def test_a_lease_that_is_kept_keeps_the_place(self, queue: Queue) -> None:
        """As long as its worker extends it, its slot stays taken."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=1), by="test")
        await queue.enqueue(RENDER, keyed("a", 2))
        [held] = await taken(queue)
        for _ in range(3):
            await self.advance(queue, LEASE * 2 / 3)
            held = Delivery(held.task, await queue.extend(held.claim, LEASE))
            assert await taken(queue, 5) == []

    async def test_a_lease_that_is_cut_short_returns_the_place_early(self, queue: Queue) -> None:
        """A slot that is extended to an earlier end is free at that end."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=1), by="test")
        await queue.enqueue(RENDER, keyed("a", 2))
        [held] = await taken(queue, 5)
        assert await taken(queue, 5) == []
        await queue.extend(held.claim, LEASE / 3)
        await self.advance(queue, LEASE / 2)
        assert ids(await taken(queue, 5)) == ["a0"]

    @pytest.mark.proves("I22", "M-44")
    @pytest.mark.parametrize("key", ["", "a"])
    async def test_the_end_of_a_task_wakes_who_waits_for_its_place(
        self, queue: Queue, key: str
    ) -> None:
        """There is a task, and no room for it: who waits gets it as soon as another one is done."""
        self.needs("policies")
        self.needs("wakeups")
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=1), by="test")
        await queue.enqueue(RENDER, [task("one", key=key), task("two", key=key)])
        [first] = await taken(queue)
        waiting = asyncio.ensure_future(queue.dequeue(RENDER, visibility=LEASE, wait=60))
        await asleep(queue, waiting)
        await queue.ack(first.claim)
        second = await at_once(waiting)
        assert second is not None
        assert second.task.id == "two"

    @pytest.mark.proves("I22")
    async def test_a_lease_that_ran_out_has_given_its_place_away(self, queue: Queue) -> None:
        """A worker that extends too late does not get its slot back while another task has it."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, concurrency=1), by="test")
        await queue.enqueue(RENDER, keyed("a", 1))
        [late] = await taken(queue)
        await queue.enqueue(RENDER, keyed("b", 1))
        await self.advance(queue, LEASE + 1)
        [other] = await taken(queue)
        assert other.task.id == "b0"
        with pytest.raises(Fenced):
            await queue.extend(late.claim, LEASE)
        assert (await queue.stats(SCOPE)).in_flight == 1

    @pytest.mark.proves("I22")
    async def test_a_key_limit(self, queue: Queue) -> None:
        """So many of one key at once, over all steps of the queue; other keys go on, and what has
        no key has no such limit."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=2), by="test")
        await queue.enqueue(
            RENDER, [*keyed("a", 5), *keyed("b", 5), task("x"), task("y"), task("z")]
        )
        await queue.enqueue(TRAIN, [task("a-train", key="a")])
        got = await taken(queue, 20)
        assert keys(got) == {"a": 2, "b": 2, "": 3}
        assert await taken(queue, 20, (RENDER, TRAIN)) == []
        await queue.ack(next(one for one in got if one.task.key == "a").claim)
        assert keys(await taken(queue, 20, (TRAIN,))) == {"a": 1}

    @pytest.mark.proves("I22")
    async def test_a_rate(self, queue: Queue) -> None:
        """No more begin in any such time than allowed; ending early changes nothing."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, rate=Rate(3, 60.0)), by="test")
        await queue.enqueue(RENDER, [*keyed("a", 10), *(task(f"p{n}") for n in range(10))])
        assert len(await done(queue, 2)) == 2
        await self.advance(queue, 40)
        assert len(await done(queue, 9)) == 1
        await self.advance(queue, 15)
        assert await taken(queue, 9) == []
        await self.advance(queue, 10)
        assert len(await done(queue, 9)) == 2
        await self.advance(queue, 40)
        assert len(await done(queue, 9)) == 1

    @pytest.mark.proves("I22")
    async def test_a_key_rate(self, queue: Queue) -> None:
        """The same for each key on its own."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_rate=Rate(2, 60.0)), by="test")
        await queue.enqueue(
            RENDER, [*keyed("a", 5), *keyed("b", 1), task("p"), task("q"), task("r")]
        )
        assert keys(await done(queue, 9)) == {"a": 2, "b": 1, "": 3}
        assert await taken(queue, 9) == []
        await self.advance(queue, 61)
        assert keys(await taken(queue, 9)) == {"a": 2}

    @pytest.mark.proves("I22")
    async def test_many_keys_at_their_limit(self, queue: Queue) -> None:
        """They delay no other key, and each continues as soon as one of its tasks has ended."""
        self.needs("policies")
        await queue.set_policy(QueuePolicy(queue=SCOPE, key_concurrency=1), by="test")
        names = [f"k{number}" for number in range(60)]
        await queue.enqueue(
            RENDER, [task(f"{key}-{n}", key=key) for key in names for n in range(3)]
        )
        first = {one.task.key: one for one in await taken(queue, 100)}
        assert sorted(first) == sorted(names)
        assert await taken(queue, 100) == []
        await queue.enqueue(RENDER, keyed("z", 2))
        assert ids(await taken(queue)) == ["z0"]
        await queue.ack(first["k7"].claim)
        await queue.nack(first["k30"].claim, delay=1000)
        assert sorted(ids(await taken(queue, 100))) == ["k30-1", "k7-1"]
        assert await taken(queue, 100) == []
        await queue.extend(first["k5"].claim, 10 * LEASE)
        await self.advance(queue, LEASE + 1)
        assert len(await taken(queue, 100)) == 60
