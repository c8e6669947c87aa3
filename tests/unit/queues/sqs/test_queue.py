"""The SQS queue, certified: standard and FIFO."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.ports.queue import Queue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue import QueueConformance
from tests.unit.queues.sqs.places import own_queue

pytestmark = pytest.mark.server


class TestSqsQueue(QueueConformance):
    """A standard queue."""

    exact_len = False  # ApproximateNumberOfMessages
    policies = False  # it cannot be told whose turn it is
    ordered = False  # best effort, and no priorities
    deduplicates = False  # a standard queue does not look inside
    knows_names = False

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """Queues with a prefix of their own."""
        async with own_queue(clock) as queue:
            yield queue


class TestSqsFifoQueue(QueueConformance):
    """A FIFO queue: tasks of one run in order, an id once in five minutes."""

    exact_len = False
    policies = False
    ordered = False  # in order within a run, not by priority
    deduplicates = False  # it does, but does not say so: see test_fifo.py
    reuses_ids = False  # an id is known for five minutes
    knows_names = False

    @pytest.fixture
    async def queue(self, clock: ManualClock) -> AsyncIterator[Queue]:
        """Queues with a prefix of their own."""
        async with own_queue(clock, fifo=True) as queue:
            yield queue
