"""The queue kit on the memory queue, on its own and on the tables of a memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.errors import InvalidValue
from outlast.ports.queue import Queue
from outlast.stores.memory import MemoryQueue, MemoryStore
from outlast.testing.clock import ManualClock
from outlast.testing.conformance.queue import QueueConformance


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


class TestQueueOfMemoryStore(QueueConformance):
    """The same on the tables of a store, where tasks are part of a commit."""

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """The queue of a store."""
        async with MemoryStore(clock=clock) as store, store.queue() as queue:
            yield queue
