"""Queues on the server, each with a prefix of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.queues.sqs import SqsQueue
from outlast.testing.virtual_clock import ManualClock
from tests.unit.queues.sqs.places import Recording, client, own_queue


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands still until it is moved, here and for SQS."""
    return ManualClock()


@pytest.fixture
def calls(clock: ManualClock) -> Recording:
    """A client that remembers what it was asked for."""
    return Recording(client(clock))


@pytest.fixture
async def queue(clock: ManualClock, calls: Recording) -> AsyncIterator[SqsQueue]:
    """An open standard queue, seen through `calls`."""
    async with own_queue(clock, client=calls) as queue:
        yield queue


@pytest.fixture
async def fifo(clock: ManualClock, calls: Recording) -> AsyncIterator[SqsQueue]:
    """An open FIFO queue, seen through `calls`."""
    async with own_queue(clock, client=calls, fifo=True) as queue:
        yield queue
