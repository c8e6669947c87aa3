"""The queue kit on the memory queue, on its own and on the tables of a memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from outlast.errors import InvalidValue
from outlast.model.run_contents import Delivery, Task
from outlast.ports.queue import Queue
from outlast.stores.memory import MemoryQueue, MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue import QueueConformance


class TestMemoryQueue(QueueConformance):
    """The specification itself."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """A queue of its own."""
        async with MemoryQueue(clock=clock, max_attempts=3) as queue:
            yield queue

    @pytest.mark.proves("I10")
    def test_no_attempt_at_all_is_refused(self) -> None:
        """A queue that never delivers is a mistake in its construction."""
        with pytest.raises(InvalidValue):
            MemoryQueue(max_attempts=0)


class Slow(MemoryQueue):
    """A queue whose answer takes its time on the way back, as over a network."""

    async def take_many(self, *args: Any, **kwargs: Any) -> list[Delivery]:
        """Look, and let others go first before the caller hears of it."""
        found = await super().take_many(*args, **kwargs)
        await asyncio.sleep(0)
        return found


@pytest.mark.proves("M-12")
async def test_what_comes_between_looking_and_waiting_is_noticed() -> None:
    """A task enqueued while "nothing" is on its way wakes the one who then begins to wait."""
    queue = Slow(clock=ManualClock())
    waiting = asyncio.ensure_future(queue.dequeue("work", wait=60))
    await asyncio.sleep(0)  # it has looked; the answer is on its way
    await queue.enqueue("work", [Task(id="a")])
    delivery = await asyncio.wait_for(waiting, 30)
    assert delivery is not None


class TestQueueOfMemoryStore(QueueConformance):
    """The same on the tables of a store, where tasks are part of a commit."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with MemoryStore(clock=clock) as store, store.queue() as queue:
            yield queue
