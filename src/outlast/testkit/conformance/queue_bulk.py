"""Conformance of a queue: many tasks taken at once are taken as one after the other would be."""

from __future__ import annotations

import asyncio

import pytest

from outlast.errors import Fenced, InvalidId, InvalidValue
from outlast.model.run_contents import Delivery
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import (
    LEASE,
    QUEUE,
    QueueSuite,
    dead_ids,
    drain,
    pull,
    put,
    task,
)

TAKERS = 6
MANY = 60


class Bulk(QueueSuite):
    """`take_many`."""

    @pytest.mark.proves("M-11", "M-12")
    async def test_as_many_as_are_wanted(self, queue: Queue) -> None:
        """No more than the limit, each once and counted; what is left stays ready."""
        await put(queue, *(f"t{n:02}" for n in range(25)))
        first = await some(queue, QUEUE, limit=14)
        assert len(first) == 14
        assert {one.task.attempt for one in first} == {1}
        assert len({one.claim.token for one in first}) == 14
        rest = await some(queue, QUEUE, limit=100)
        ids = [one.task.id for one in (*first, *rest)]
        assert sorted(ids) == [f"t{n:02}" for n in range(25)]
        assert await some(queue, QUEUE, limit=10) == []

    @pytest.mark.proves("M-11")
    async def test_nothing_is_there(self, queue: Queue) -> None:
        """That is an empty list, also for no queue at all."""
        assert await some(queue, QUEUE, "never-heard-of", limit=5) == []
        assert await some(queue, limit=5) == []

    @pytest.mark.proves("M-11")
    async def test_several_queues_and_no_others(self, queue: Queue) -> None:
        """A worker gets what it can do, each task with the name of its queue."""
        for name in ("left", "right", "other"):
            await put(queue, f"{name}-1", f"{name}-2", name=name)
        taken = await some(queue, "left", "right", limit=10)
        found = sorted((one.task.queue, one.task.id, one.claim.queue) for one in taken)
        assert found == [(name, f"{name}-{n}", name) for name in ("left", "right") for n in (1, 2)]
        assert sorted(await drain(queue, "other")) == ["other-1", "other-2"]

    @pytest.mark.proves("M-11")
    async def test_the_order_is_one_over_all_queues(self, queue: Queue) -> None:
        """Smallest priority, then ready longest, then first come, whatever the queue."""
        self.needs("ordered")
        await queue.enqueue("b", [task("old", priority=0)])
        await self.advance(queue, 1)
        await queue.enqueue("a", [task("late", priority=9), task("new", priority=0)])
        await queue.enqueue("b", [task("urgent", priority=-9), task("newer", priority=0)])
        taken = await some(queue, "a", "b", limit=3)
        assert [one.task.id for one in taken] == ["urgent", "old", "new"]
        assert [one.task.id for one in await some(queue, "a", "b", limit=3)] == ["newer", "late"]

    @pytest.mark.proves("M-24", "M-25", "I13")
    async def test_each_has_a_claim_of_its_own(self, queue: Queue) -> None:
        """It is done, given back or lost without the others, and comes again when its lease ends."""
        await put(queue, "a", "b", "c")
        taken = {one.task.id: one for one in await some(queue, QUEUE, limit=3)}
        await queue.ack(taken["a"].claim)
        await queue.nack(taken["b"].claim)
        assert (await pull(queue)).task.id == "b"
        await self.advance(queue, LEASE + 1)
        again = {one.task.id: one for one in await some(queue, QUEUE, limit=3)}
        assert {id: one.task.attempt for id, one in again.items()} == {"b": 3, "c": 2}
        with pytest.raises(Fenced):
            await queue.ack(taken["c"].claim)
        await queue.ack(again["c"].claim)

    @pytest.mark.proves("M-26", "I13")
    async def test_what_is_spent_is_buried_and_holds_up_nobody(self, queue: Queue) -> None:
        """Tasks that have used up their attempts are not handed out, and those behind them are."""
        await put(queue, "bad-1", "bad-2")
        for _ in range(queue.max_attempts):
            assert len(await some(queue, QUEUE, limit=2)) == 2
            await self.advance(queue, LEASE + 1)
        await put(queue, "good")
        taken = await some(queue, QUEUE, limit=2)
        taken += await some(queue, QUEUE, limit=2)
        assert [one.task.id for one in taken] == ["good"]
        assert await dead_ids(queue) == ["bad-1", "bad-2"]

    @pytest.mark.proves("M-26", "I13")
    async def test_what_is_spent_among_what_is_not(self, queue: Queue) -> None:
        """Runs' own tasks too: of a mixture each goes where it belongs, and none is lost."""
        await queue.enqueue(QUEUE, [task("bad", run_id="r1"), task("worse", run_id="r2")])
        for _ in range(queue.max_attempts):
            assert len(await some(queue, QUEUE, limit=2)) == 2
            await self.advance(queue, LEASE + 1)
        await queue.enqueue(QUEUE, [task(f"t{n}", run_id=f"a{n}", priority=-1) for n in range(3)])
        await queue.enqueue(QUEUE, [task("last", run_id="z", priority=1)])
        taken: list[Delivery] = []
        while more := await some(queue, QUEUE, limit=4):
            taken += more
        assert sorted(one.task.id for one in taken) == ["last", "t0", "t1", "t2"]
        assert {one.task.attempt for one in taken} == {1}
        assert sorted(await dead_ids(queue)) == ["bad", "worse"]

    @pytest.mark.proves("M-12", "S-15", "I13")
    async def test_takers_at_once_share_out_the_tasks(self, queue: Queue) -> None:
        """None is handed to two of them, and none is left over."""
        ids = [f"t{n:03}" for n in range(MANY)]
        await put(queue, *ids)

        async def take(owner: str) -> list[str]:
            own: list[str] = []
            while more := await some(queue, QUEUE, limit=7, owner=owner):
                own += [one.task.id for one in more]
            return own

        shares = await asyncio.gather(*(take(f"w{n}") for n in range(TAKERS)))
        # One who looks while others have it all may find nothing and leave.
        rest = [one.task.id for one in await some(queue, QUEUE, limit=MANY)]
        assert sorted([id for own in shares for id in own] + rest) == ids

    @pytest.mark.proves("M-12", "I10")
    async def test_bad_wishes_are_refused(self, queue: Queue) -> None:
        """Before anything is taken."""
        await put(queue, "a")
        for limit in (0, -1, 10**9):
            with pytest.raises(InvalidValue):
                await some(queue, QUEUE, limit=limit)
        with pytest.raises(InvalidValue):
            await queue.take_many("work", owner="w", visibility=LEASE, limit=1)
        with pytest.raises(InvalidValue):
            await queue.take_many([QUEUE], owner="w", visibility=0, limit=1)
        with pytest.raises(InvalidId):
            await some(queue, QUEUE, "", limit=1)
        with pytest.raises(InvalidId):
            await some(queue, QUEUE, limit=1, owner="")
        assert await drain(queue) == ["a"]


async def some(queue: Queue, *names: str, limit: int, owner: str = "w") -> list[Delivery]:
    """Tasks of those queues, at most so many."""
    return await queue.take_many(names, owner=owner, visibility=LEASE, limit=limit)
