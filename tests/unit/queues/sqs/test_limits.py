"""Where SQS ends: 256 KB, 15 minutes, 12 hours."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from outlast.errors import Fenced, NotFound, PayloadTooLarge
from outlast.model.run_contents import Task
from outlast.queues.sqs import SqsQueue
from outlast.queues.sqs.message import MAX_SENT
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import drain, pull, put
from tests.unit.queues.sqs.places import Recording, own_queue

pytestmark = pytest.mark.server
HOUR = 3600.0
KINDS = pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])


@pytest.fixture
def fifo() -> bool:
    """A standard queue, unless a test wants another."""
    return False


@pytest.fixture
async def queue(clock: ManualClock, calls: Recording, fifo: bool) -> AsyncIterator[SqsQueue]:
    """An open queue of either kind, seen through `calls`."""
    async with own_queue(clock, client=calls, fifo=fifo) as queue:
        yield queue


@pytest.mark.proves("M-20")
async def test_a_task_that_is_too_large_is_refused_with_advice(
    queue: SqsQueue, calls: Recording
) -> None:
    """Before anything is sent: keep the payload in a store and send what names it."""
    large = Raw(b'"' + b"x" * MAX_SENT + b'"')
    with pytest.raises(PayloadTooLarge, match="in a store") as refused:
        await queue.enqueue("work", [Task(id="good"), Task(id="huge", input=large)])
    assert "'huge'" in str(refused.value)
    assert "send_message_batch" not in calls.since(0)


@pytest.mark.proves("M-20", "I28")
async def test_the_largest_task_fits_also_among_the_dead(queue: SqsQueue) -> None:
    """There is room left for the reason, however long it is."""
    input = Raw(b'"' + b"x" * (MAX_SENT - 200) + b'"')
    await queue.enqueue("work", [Task(id="a", input=input)])
    await queue.nack((await pull(queue)).claim, requeue=False, reason="ö" * 10_000)
    (dead,) = await queue.dead("work")
    assert bytes(dead.task.input or b"") == bytes(input)


@pytest.mark.proves("M-20", "M-26", "C-10")
async def test_the_largest_task_can_be_sent_again(queue: SqsQueue, clock: ManualClock) -> None:
    """Delayed for days, given back for a day, held for a day: each copy still fits."""
    before = Task(id="a", input=Raw(b'"' + b"x" * (MAX_SENT - 130) + b'"'))
    await queue.enqueue("work", [before], delay=20 * HOUR)
    for _ in range(19):
        assert await queue.dequeue("work") is None
        clock.advance(HOUR)
    clock.advance(2 * HOUR)
    await queue.nack((await pull(queue)).claim, delay=20 * HOUR)
    for _ in range(19):
        assert await queue.dequeue("work") is None
        clock.advance(HOUR)
    clock.advance(2 * HOUR)
    claim = (await pull(queue)).claim
    for _ in range(20):
        claim = await queue.extend(claim, 2 * HOUR)
        clock.advance(HOUR)
    await queue.nack(claim, requeue=False)
    (dead,) = await queue.dead("work")
    assert dead.task.input == before.input


@pytest.mark.proves("I28")
async def test_bytes_that_sqs_would_change_are_kept(queue: SqsQueue) -> None:
    """Line ends, characters that SQS refuses, and what is beyond ASCII."""
    text = '{"a":\r\n"\ufffe\uffff 𝄞 \x7f"}'.encode()
    await queue.enqueue("work", [Task(id="a", input=Raw(text), name="\ufffe\x00\r")])
    got = (await pull(queue)).task
    assert (bytes(got.input or b""), got.name) == (text, "\ufffe\x00\r")


@pytest.mark.proves("M-44")
@KINDS
async def test_a_delay_of_days(queue: SqsQueue, clock: ManualClock) -> None:
    """Longer than SQS holds back or hides anything; to be looked at every hour costs no attempt."""
    await put(queue, "a", delay=40 * HOUR)
    for _ in range(39):
        assert await queue.dequeue("work") is None
        clock.advance(HOUR)
    assert await queue.dequeue("work") is None
    clock.advance(2 * HOUR)
    assert (await pull(queue)).task.attempt == 1


@pytest.mark.proves("M-26")
async def test_a_backoff_of_a_day(queue: SqsQueue, clock: ManualClock) -> None:
    """Longer than SQS hides: sent again, and the attempts go on counting."""
    await put(queue, "a")
    await queue.nack((await pull(queue)).claim, delay=24 * HOUR)
    for _ in range(23):
        clock.advance(HOUR)
        assert await queue.dequeue("work") is None
    clock.advance(2 * HOUR)
    assert (await pull(queue)).task.attempt == 2


@pytest.mark.proves("M-20", "C-10")
@KINDS
async def test_a_task_of_two_days_is_held(queue: SqsQueue, clock: ManualClock) -> None:
    """Extended every ten minutes for 48 hours, past the 12 that SQS allows: nobody else gets it,
    others' tasks pass, and when it is acked it is gone."""
    await put(queue, "long")
    held = await pull(queue)
    claim = await queue.extend(held.claim, 1200)
    for minute in range(0, 48 * 60, 10):
        clock.advance(600)
        claim = await queue.extend(claim, 1200)
        if minute % 360 == 0:
            await put(queue, f"t{minute}")
            assert await drain(queue) == [f"t{minute}"]
    assert claim.token == held.claim.token
    assert await queue.dequeue("work") is None
    await queue.ack(claim)
    with pytest.raises(NotFound):
        await queue.extend(claim, 60)
    clock.advance(24 * HOUR)
    assert await queue.dequeue("work") is None


@pytest.mark.proves("M-25", "C-10")
async def test_a_worker_that_dies_after_12_hours_loses_the_task(
    queue: SqsQueue, clock: ManualClock
) -> None:
    """What was sent again is under the same lease: another worker gets it as the next attempt."""
    await put(queue, "long")
    claim = (await pull(queue)).claim
    for _ in range(13 * 3):
        claim = await queue.extend(claim, 1800)
        clock.advance(1200)
    clock.advance(700)
    taken = await pull(queue, owner="other")
    assert (taken.task.id, taken.task.attempt) == ("long", 2)
    with pytest.raises(Fenced):
        await queue.ack(claim)


@pytest.mark.proves("M-23", "C-10")
async def test_a_copy_that_another_process_finds_stays_hidden(
    queue: SqsQueue, clock: ManualClock, calls: Recording
) -> None:
    """Another process that receives the copy first does not work on it; the holder finishes."""
    await put(queue, "long")
    claim = (await pull(queue)).claim
    prefix = calls.last("create_queue")["QueueName"].removesuffix("work")
    async with own_queue(clock, client=calls, prefix=prefix) as other:
        for _ in range(14):
            claim = await queue.extend(claim, 2 * HOUR)
            clock.advance(HOUR)
            assert await other.dequeue("work") is None
        await queue.ack(claim)
        assert await other.dequeue("work") is None
