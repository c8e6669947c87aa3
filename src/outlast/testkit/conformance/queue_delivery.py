"""Conformance of a queue: what goes in comes out, whole, in order and at its time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import Raw
from msgspec.structs import replace

from outlast.errors import PayloadTooLarge
from outlast.model.run_contents import Task
from outlast.model.times import EPOCH
from outlast.model.validation import MAX_PAYLOAD_BYTES
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import QUEUE, QueueSuite, drain, pull, put, task

TEXT = "naïve \x00 \u202e 𝄞 :{}~ \\ \" '"


class Deliveries(QueueSuite):
    """Enqueue, dequeue, order, delay, length."""

    @pytest.mark.proves("M-12", "C-22")
    async def test_an_empty_queue_hands_out_nothing(self, queue: Queue) -> None:
        """Nothing to do is an answer, not an error."""
        assert await queue.dequeue(QUEUE) is None
        assert await queue.len("never-heard-of") == 0

    @pytest.mark.proves("M-11", "M-45", "I28")
    async def test_a_task_comes_out_as_it_went_in(self, queue: Queue) -> None:
        """Every field survives; the queue fills in its own name, the time and the attempt."""
        sent = Task(
            id="t-1",
            kind="step",
            name=TEXT,
            run_id="run/1",
            uid="life-1",
            step="main/pay#2",
            definition="sha256-of-code",
            input=Raw(b'{"b": 1.0, "a": [null, "\\u0000"], "n": 12345678901234567890123}'),
            priority=-3,
            run_at=self.now(queue) - timedelta(hours=1),
            metadata={"trace": TEXT, "": "empty"},
        )
        await queue.enqueue(QUEUE, [sent])
        got = (await pull(queue)).task
        assert got.enqueued_at > EPOCH
        assert replace(got, enqueued_at=EPOCH) == replace(sent, queue=QUEUE, attempt=1)

    @pytest.mark.proves("I28")
    @pytest.mark.parametrize("size", [0, 1, 70_000])
    async def test_input_bytes_are_kept_exactly(self, queue: Queue, size: int) -> None:
        """No input, a small and a large one come back byte for byte."""
        data = Raw(b'"' + b"x" * size + b'"') if size else None
        await queue.enqueue(QUEUE, [task("t", input=data)])
        got = (await pull(queue)).task.input
        assert (None if got is None else bytes(got)) == (None if data is None else bytes(data))

    @pytest.mark.proves("M-11")
    async def test_enqueue_counts_what_is_new(self, queue: Queue) -> None:
        """The answer says how many were added; an empty list adds none."""
        assert await queue.enqueue(QUEUE, [task("a"), task("b")]) == 2
        assert await queue.enqueue(QUEUE, []) == 0
        assert await drain(queue) == ["a", "b"]

    @pytest.mark.proves("M-11", "M-23")
    async def test_a_task_that_waits_is_not_added_again(self, queue: Queue) -> None:
        """A retried enqueue is harmless: the first one stays as it is."""
        self.needs("deduplicates")
        await queue.enqueue(QUEUE, [task("a", name="first")])
        assert await queue.enqueue(QUEUE, [task("a", name="second"), task("b")]) == 1
        assert (await pull(queue)).task.name == "first"
        assert await drain(queue) == ["b"]

    @pytest.mark.proves("M-11", "M-23")
    async def test_twice_in_one_call_is_once(self, queue: Queue) -> None:
        """The rule holds within one call too."""
        self.needs("deduplicates")
        assert await queue.enqueue(QUEUE, [task("a"), task("a")]) == 1
        assert await drain(queue) == ["a"]

    @pytest.mark.proves("M-11", "M-23")
    async def test_a_task_in_flight_is_not_added_again(self, queue: Queue) -> None:
        """While a worker has it, enqueueing it again does not start a second copy."""
        self.needs("deduplicates")
        await put(queue, "a")
        held = await pull(queue)
        assert await queue.enqueue(QUEUE, [task("a")]) == 0
        await queue.ack(held.claim)
        assert await queue.dequeue(QUEUE) is None

    @pytest.mark.proves("M-11")
    async def test_an_acked_id_can_be_used_again(self, queue: Queue) -> None:
        """An id is taken while the task is there, and no longer."""
        self.needs("reuses_ids")
        await put(queue, "a")
        await queue.ack((await pull(queue)).claim)
        assert await queue.enqueue(QUEUE, [task("a")]) == 1
        assert (await pull(queue)).task.attempt == 1

    @pytest.mark.proves("M-11")
    async def test_two_runs_may_have_a_task_of_one_name(self, queue: Queue) -> None:
        """Task ids are names inside a run: runs do not get in each other's way."""
        tasks = [task("pay", run_id="r1"), task("pay", run_id="r2")]
        assert await queue.enqueue(QUEUE, tasks) == 2
        first, second = await pull(queue), await pull(queue)
        await queue.ack(first.claim)
        await queue.nack(second.claim)
        assert (await pull(queue)).task.run_id == second.task.run_id

    @pytest.mark.proves("M-11")
    async def test_named_queues_are_apart(self, queue: Queue) -> None:
        """Neither tasks, ids nor lengths of one queue show in another."""
        await put(queue, "a", name="left")
        await put(queue, "a", "b", name="right")
        assert await queue.dequeue(QUEUE) is None
        assert await drain(queue, "left") == ["a"]
        assert sorted(await drain(queue, "right")) == ["a", "b"]

    # -- order --------------------------------------------------------------------------------

    @pytest.mark.proves("M-11")
    async def test_smallest_priority_first(self, queue: Queue) -> None:
        """Priority goes before everything else."""
        self.needs("ordered")
        tasks = [task(f"p{priority}", priority=priority) for priority in (5, -1, 0, 7)]
        await queue.enqueue(QUEUE, tasks)
        assert await drain(queue) == ["p-1", "p0", "p5", "p7"]

    @pytest.mark.proves("M-11")
    async def test_then_the_one_that_is_ready_longest(self, queue: Queue) -> None:
        """It is readiness that counts, not the order of arrival."""
        self.needs("ordered")
        await put(queue, "late", delay=60)
        await put(queue, "soon", delay=20)
        await self.advance(queue, 10)
        await put(queue, "now")
        await self.advance(queue, 90)
        assert await drain(queue) == ["now", "soon", "late"]

    @pytest.mark.proves("M-11")
    async def test_then_the_first_to_arrive(self, queue: Queue) -> None:
        """Within one call and between calls, whatever the ids."""
        self.needs("ordered")
        await put(queue, "m", "a")
        await put(queue, "z", "b")
        assert await drain(queue) == ["m", "a", "z", "b"]

    @pytest.mark.proves("M-11", "M-26")
    async def test_a_returned_task_queues_up_behind(self, queue: Queue) -> None:
        """A task given back is ready from then on; those that waited before go first."""
        self.needs("ordered")
        await put(queue, "failing")
        held = await pull(queue)
        await put(queue, "waiting")
        await self.advance(queue, 1)
        await queue.nack(held.claim)
        assert await drain(queue) == ["waiting", "failing"]

    # -- time ---------------------------------------------------------------------------------

    @pytest.mark.proves("M-44")
    async def test_a_delay_holds_back(self, queue: Queue) -> None:
        """Not before its time, and then it is there."""
        await put(queue, "a", delay=60)
        await self.advance(queue, 50)
        assert await queue.dequeue(QUEUE) is None
        await self.advance(queue, 20)
        assert await drain(queue) == ["a"]

    @pytest.mark.proves("M-44")
    async def test_run_at_holds_back(self, queue: Queue) -> None:
        """A task may name its own time; one in the past is ready now."""
        soon = self.now(queue) + timedelta(seconds=60)
        await queue.enqueue(QUEUE, [task("later", run_at=soon)])
        await queue.enqueue(QUEUE, [task("past", run_at=EPOCH)])
        assert await drain(queue) == ["past"]
        await self.advance(queue, 70)
        assert await drain(queue) == ["later"]

    @pytest.mark.proves("M-44")
    @pytest.mark.parametrize(("delay", "run_in"), [(60, 10), (10, 60)])
    async def test_the_later_of_delay_and_run_at_counts(
        self, queue: Queue, delay: float, run_in: float
    ) -> None:
        """Neither of the two can pull a task forward."""
        run_at = self.now(queue) + timedelta(seconds=run_in)
        await queue.enqueue(QUEUE, [task("a", run_at=run_at)], delay=delay)
        await self.advance(queue, 50)
        assert await queue.dequeue(QUEUE) is None
        await self.advance(queue, 20)
        assert await drain(queue) == ["a"]

    @pytest.mark.proves("M-11")
    async def test_what_is_delayed_blocks_nobody(self, queue: Queue) -> None:
        """An urgent task that is not due lets a lesser one pass."""
        await queue.enqueue(QUEUE, [task("urgent", priority=-9)], delay=60)
        await queue.enqueue(QUEUE, [task("plain")])
        assert await drain(queue) == ["plain"]

    # -- length and atomicity -----------------------------------------------------------------

    @pytest.mark.proves("M-15")
    async def test_len_counts_what_is_ready(self, queue: Queue) -> None:
        """Delayed, in flight and dead tasks are not ready; a lease that ran out makes them so."""
        self.needs("exact_len")
        await put(queue, "a", "b", "c")
        await put(queue, "delayed", delay=60)
        assert await queue.len(QUEUE) == 3
        await pull(queue)
        assert await queue.len(QUEUE) == 2
        await queue.nack((await pull(queue)).claim, requeue=False)
        assert await queue.len(QUEUE) == 1
        assert await queue.len("other") == 0
        await self.advance(queue, 70)
        assert await queue.len(QUEUE) == 3

    @pytest.mark.proves("M-11", "I12", "I28")
    async def test_one_bad_task_keeps_all_out(self, queue: Queue) -> None:
        """All or nothing: the good task before the bad one is not added either."""
        huge = Raw(b'"' + b"x" * MAX_PAYLOAD_BYTES + b'"')
        with pytest.raises(PayloadTooLarge):
            await queue.enqueue(QUEUE, [task("good"), task("huge", input=huge)])
        assert await queue.dequeue(QUEUE) is None
