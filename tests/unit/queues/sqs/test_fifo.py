"""FIFO queues: one group a run, one message a task."""

from __future__ import annotations

import pytest

from outlast.model.run_contents import Task
from outlast.queues.sqs import SqsQueue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import drain, pull, put
from tests.unit.queues.sqs.places import Recording

pytestmark = pytest.mark.server


@pytest.mark.proves("M-28")
async def test_the_group_is_the_run(fifo: SqsQueue, calls: Recording) -> None:
    """A run's id is the group; one that SQS would not take is hashed; a task without run is alone."""
    runs = ["order-1", "größe", "x" * 200, ""]
    tasks = [Task(id=f"t{number}", run_id=run) for number, run in enumerate(runs)]
    await fifo.enqueue("work", tasks)
    entries = calls.last("send_message_batch")["Entries"]
    groups = [entry["MessageGroupId"] for entry in entries]
    assert groups[0] == "order-1"
    assert groups[3] == "t3"
    assert all(len(group) == 64 and group.isalnum() for group in groups[1:3])


@pytest.mark.proves("M-28")
async def test_tasks_of_a_run_come_one_after_the_other(fifo: SqsQueue) -> None:
    """In the order in which they were sent, the next one when the one before is done; another run
    does not wait."""
    await fifo.enqueue("work", [Task(id=id, run_id="r1") for id in ("c", "a", "b")])
    await fifo.enqueue("work", [Task(id="other", run_id="r2")])
    first, second = await pull(fifo), await pull(fifo)
    assert (first.task.id, second.task.id) == ("c", "other")
    assert await fifo.dequeue("work") is None
    await fifo.ack(first.claim)
    assert await drain(fifo) == ["a", "b"]


@pytest.mark.proves("M-28", "M-23")
async def test_a_task_sent_again_is_one_message(fifo: SqsQueue) -> None:
    """SQS knows a task by its run and id for five minutes: a retried enqueue is harmless."""
    for _ in range(3):
        await fifo.enqueue("work", [Task(id="pay", run_id="r1"), Task(id="pay", run_id="r2")])
    got = [await pull(fifo), await pull(fifo)]
    assert {delivery.task.run_id for delivery in got} == {"r1", "r2"}
    assert await fifo.dequeue("work") is None


@pytest.mark.proves("M-28", "C-21")
async def test_a_redriven_task_is_not_taken_for_a_duplicate(fifo: SqsQueue) -> None:
    """Within five minutes of its first sending it is buried, redriven, buried and redriven."""
    await put(fifo, "a")
    for _ in range(2):
        await fifo.nack((await pull(fifo)).claim, requeue=False)
        assert await fifo.redrive("work") == 1
    assert await drain(fifo) == ["a"]


@pytest.mark.proves("M-28", "M-44")
async def test_a_delay_is_kept_where_sqs_has_none(fifo: SqsQueue, clock: ManualClock) -> None:
    """FIFO queues know no delay of a message: it is hidden by whoever comes too early, and that is
    no attempt."""
    await put(fifo, "a", delay=100)
    for _ in range(9):
        assert await fifo.dequeue("work") is None
        clock.advance(11)
    clock.advance(5)
    assert (await pull(fifo)).task.attempt == 1
