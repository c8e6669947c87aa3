"""Conformance of a queue: attempts are bounded, the dead can be looked at and brought back."""

from __future__ import annotations

import pytest

from outlast.errors import NotFound, Unsupported
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import (
    LEASE,
    QUEUE,
    QueueSuite,
    bury,
    dead_ids,
    drain,
    pull,
    put,
    task,
)


class DeadTasks(QueueSuite):
    """Dead letters, redrive, purge."""

    @pytest.mark.proves("I10", "C-21", "M-18")
    async def test_attempts_are_bounded(self, queue: Queue) -> None:
        """A task that kills every worker is handed out as often as allowed and then no more: attempts
        are counted before the work begins."""
        await put(queue, "poison")
        for attempt in range(1, queue.max_attempts + 1):
            assert (await pull(queue)).task.attempt == attempt
            await self.advance(queue, LEASE + 5)
        assert await queue.dequeue(QUEUE) is None
        (dead,) = await queue.dead(QUEUE)
        assert (dead.task.id, dead.task.attempt) == ("poison", queue.max_attempts)
        assert dead.reason

    @pytest.mark.proves("I10", "C-21", "M-14")
    async def test_the_last_nack_buries(self, queue: Queue) -> None:
        """Giving it back when no attempt is left puts it among the dead, with the reason."""
        await put(queue, "a")
        for _ in range(queue.max_attempts):
            assert await queue.dead(QUEUE) == []
            await queue.nack((await pull(queue)).claim, reason="it broke")
        assert await queue.dequeue(QUEUE) is None
        (dead,) = await queue.dead(QUEUE)
        assert (dead.task.id, dead.reason) == ("a", "it broke")

    @pytest.mark.proves("I10", "C-21")
    async def test_a_poison_task_holds_up_nobody(self, queue: Queue) -> None:
        """The take that finds it worn out goes on to the next task in the same call."""
        await queue.enqueue(QUEUE, [task("poison", priority=-1)])
        for _ in range(queue.max_attempts):
            await pull(queue)
            await self.advance(queue, LEASE + 5)
        await put(queue, "healthy")
        assert (await pull(queue)).task.id == "healthy"

    @pytest.mark.proves("M-18")
    async def test_queues_are_known_by_their_tasks(self, queue: Queue) -> None:
        """Whatever state a task is in, its queue is listed; one without tasks is not."""
        if not self.knows_names:
            with pytest.raises(Unsupported):
                await queue.names()
            return
        assert await queue.names() == []
        await queue.enqueue("ready", [task("a")])
        await queue.enqueue("late", [task("a")], delay=3600)
        await queue.enqueue("flight é", [task("a")])
        assert await queue.take("flight é", owner="w", visibility=LEASE)
        await bury(queue, "worn out")
        assert await queue.names() == sorted(["ready", "late", "flight é", QUEUE])
        delivery = await queue.take("ready", owner="w", visibility=LEASE)
        assert delivery is not None
        await queue.ack(delivery.claim)
        assert "ready" not in await queue.names()

    @pytest.mark.proves("M-14", "M-27", "C-21")
    async def test_a_rejected_task_is_dead_at_once(self, queue: Queue) -> None:
        """Whatever attempts are left; it is not handed out again, ever."""
        await put(queue, "a")
        await queue.nack((await pull(queue)).claim, requeue=False, reason="not a number")
        await self.advance(queue, LEASE * 10)
        assert await queue.dequeue(QUEUE) is None
        (dead,) = await queue.dead(QUEUE)
        assert (dead.task.id, dead.task.attempt, dead.reason) == ("a", 1, "not a number")

    @pytest.mark.proves("M-27", "C-21")
    async def test_a_dropped_task_is_gone(self, queue: Queue) -> None:
        """Dropping is asked for by name and leaves nothing behind."""
        await put(queue, "a")
        await queue.nack((await pull(queue)).claim, requeue=False, drop=True)
        assert await queue.dequeue(QUEUE) is None
        assert await queue.dead(QUEUE) == []
        assert await queue.redrive(QUEUE) == 0

    @pytest.mark.proves("C-21")
    async def test_the_claim_on_a_dead_task_is_void(self, queue: Queue) -> None:
        """Who buried it can do no more to it."""
        await put(queue, "a")
        held = await pull(queue)
        await queue.nack(held.claim, requeue=False)
        with pytest.raises(NotFound):
            await queue.ack(held.claim)
        assert await dead_ids(queue) == ["a"]

    @pytest.mark.proves("C-21")
    async def test_the_longest_dead_come_first(self, queue: Queue) -> None:
        """In the order in which they died, and at most as many as asked for."""
        for id in ("c", "a", "b"):
            await bury(queue, id)
            await self.advance(queue, 1)
        dead = await queue.dead(QUEUE)
        assert [one.task.id for one in dead] == ["c", "a", "b"]
        assert [one.died_at for one in dead] == sorted(one.died_at for one in dead)
        assert [one.task.id for one in await queue.dead(QUEUE, limit=2)] == ["c", "a"]

    @pytest.mark.proves("C-21")
    async def test_each_queue_has_its_own_dead(self, queue: Queue) -> None:
        """Looking at, redriving or purging one queue leaves the other alone."""
        await bury(queue, "a", name="left")
        await bury(queue, "a", name="right")
        assert await queue.dead(QUEUE) == []
        assert await queue.purge("left") == 1
        assert await dead_ids(queue, "right") == ["a"]
        assert await queue.redrive("left") == 0

    @pytest.mark.proves("C-21")
    async def test_redrive_gives_fresh_attempts(self, queue: Queue) -> None:
        """A dead task brought back starts again with its first attempt, whole and bounded."""
        await queue.enqueue(QUEUE, [task("a", name="charge", metadata={"k": "v"})])
        await queue.nack((await pull(queue)).claim, requeue=False)
        assert await queue.redrive(QUEUE) == 1
        assert await queue.dead(QUEUE) == []
        for attempt in range(1, queue.max_attempts + 1):
            got = (await pull(queue)).task
            assert (got.attempt, got.name, got.metadata) == (attempt, "charge", {"k": "v"})
            await self.advance(queue, LEASE + 5)
        assert await queue.dequeue(QUEUE) is None
        assert await dead_ids(queue) == ["a"]

    @pytest.mark.proves("C-21")
    async def test_redrive_takes_only_those_named(self, queue: Queue) -> None:
        """Unknown ids are ignored and not counted."""
        await bury(queue, "a", "b", "c")
        assert await queue.redrive(QUEUE, ["b", "nobody"]) == 1
        assert await drain(queue) == ["b"]
        assert await dead_ids(queue) == ["a", "c"]

    @pytest.mark.proves("C-21")
    async def test_purge_removes_for_good(self, queue: Queue) -> None:
        """Those named, or all; what lives in the queue is not touched."""
        await bury(queue, "a", "b", "c")
        await put(queue, "alive")
        assert await queue.purge(QUEUE, ["b", "nobody"]) == 1
        assert await dead_ids(queue) == ["a", "c"]
        assert await queue.purge(QUEUE) == 2
        assert await queue.redrive(QUEUE) == 0
        assert await drain(queue) == ["alive"]

    @pytest.mark.proves("C-21")
    async def test_naming_none_touches_none(self, queue: Queue) -> None:
        """An empty selection is empty, not everything."""
        await bury(queue, "a")
        assert await queue.redrive(QUEUE, []) == 0
        assert await queue.purge(QUEUE, []) == 0
        assert await dead_ids(queue) == ["a"]

    @pytest.mark.proves("M-15", "C-21")
    async def test_redriven_tasks_are_ready(self, queue: Queue) -> None:
        """They count again."""
        self.needs("exact_len")
        await bury(queue, "a", "b")
        assert await queue.len(QUEUE) == 0
        await queue.redrive(QUEUE)
        assert await queue.len(QUEUE) == 2
