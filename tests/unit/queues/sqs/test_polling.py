"""Long polls: one request waits at SQS, in a thread, and can be left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast.errors import QueueClosed, TimedOut
from outlast.ports.clock import SystemClock
from outlast.queues.sqs import SqsQueue
from outlast.testkit.conformance.queue_base import pull, put
from tests.unit.queues.sqs.places import Recording, client, own_queue

pytestmark = pytest.mark.server


class Watched(Recording):
    """A client that says when a long poll begins."""

    def __init__(self) -> None:
        super().__init__(client())
        self.polling = threading.Event()

    def receive_message(self, **parameters: Any) -> Any:
        self.made.append(("receive_message", parameters))
        if parameters["WaitTimeSeconds"]:
            self.polling.set()
        return self._inner.receive_message(**parameters)


@pytest.fixture
def watched() -> Watched:
    """The client of the queue."""
    return Watched()


@pytest.fixture
async def queue(watched: Watched) -> AsyncIterator[SqsQueue]:
    """A queue on the real clock, with long polls."""
    async with own_queue(SystemClock(), client=watched, long_poll=20) as queue:
        yield queue


async def polls(watched: Watched) -> None:
    """Return when a long poll has begun."""
    await asyncio.to_thread(watched.polling.wait, 60)


@pytest.mark.proves("M-20", "M-12")
async def test_a_message_ends_the_wait(queue: SqsQueue, watched: Watched) -> None:
    """One request waits, for as long as SQS allows, and is answered when a task comes."""
    waiting = asyncio.ensure_future(queue.dequeue("work", wait=60))
    await polls(watched)
    await put(queue, "a")
    delivery = await asyncio.wait_for(waiting, 60)
    assert delivery is not None
    assert watched.since(0).count("receive_message") == 1
    assert watched.last("receive_message")["WaitTimeSeconds"] == 20


@pytest.mark.proves("M-12", "C-22")
async def test_a_wait_in_vain_gives_none(queue: SqsQueue) -> None:
    """When its time is up."""
    assert await queue.dequeue("work", wait=1.2) is None


@pytest.mark.proves("M-16", "C-22")
async def test_closing_ends_a_long_poll(queue: SqsQueue, watched: Watched) -> None:
    """Who waits is told at once, though the thread is still at SQS; what comes there is given back."""
    waiting = asyncio.ensure_future(queue.dequeue("work", wait=60))
    await polls(watched)
    await queue.close()
    with pytest.raises(QueueClosed):
        await asyncio.wait_for(waiting, 60)
    await queue.open()
    await put(queue, "a")  # the thread that is still there may get it, and shows it again
    delivery = await queue.dequeue("work", wait=20)
    assert delivery is not None


@pytest.mark.proves("M-10", "M-12")
async def test_a_cancelled_long_poll_takes_nothing(queue: SqsQueue, watched: Watched) -> None:
    """What comes for somebody who has gone is there for the next one, long before its lease ends."""
    waiting = asyncio.ensure_future(queue.dequeue("work", visibility=3600, wait=60))
    await polls(watched)
    waiting.cancel()
    await asyncio.wait([waiting])
    await put(queue, "a")
    assert await queue.dequeue("work", wait=20) is not None


@pytest.mark.proves("M-10")
async def test_a_look_that_takes_too_long_is_given_up(queue: SqsQueue) -> None:
    """The deadline of the call holds for looking, too, and nothing is lost by it."""
    await put(queue, "a")
    with pytest.raises(TimedOut):
        await queue.take("work", owner="w", visibility=3600, timeout=0)
    assert (await queue.dequeue("work", wait=20)) is not None


@pytest.mark.proves("M-20")
async def test_waiting_for_many_does_not_hold_up_others(queue: SqsQueue, watched: Watched) -> None:
    """More long polls than there are threads for short calls: those still go through."""
    waiting = [asyncio.ensure_future(queue.dequeue("idle", wait=60)) for _ in range(30)]
    await polls(watched)
    await put(queue, "a")
    await queue.ack((await pull(queue)).claim)
    await queue.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, QueueClosed) for answer in answers)
    await queue.open()
