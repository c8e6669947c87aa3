"""What the parts of the queue's conformance kit share: fixtures, declared facts, a few verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime
from typing import ClassVar, TypeVar

import pytest

from outlast.model.run_contents import Delivery, Task
from outlast.ports.queue import Queue
from outlast.testing.virtual_clock import ManualClock

T = TypeVar("T")
QUEUE = "work"
LEASE = 30.0
"""Seconds. Tests move time well before or well past it, so that a server's own clock may run on."""


class QueueSuite:
    """The base of all parts. A queue that cannot promise something says so here; the tests that
    need it are then skipped with that reason, visible in the report."""

    exact_len: ClassVar[bool] = True
    """`len` counts exactly, at once. False for a service that only estimates."""

    ordered: ClassVar[bool] = True
    """Tasks come by priority, then readiness, then arrival. False for a best-effort order."""

    deduplicates: ClassVar[bool] = True
    """A task that is already queued is not added again. False if the queue cannot check."""

    reuses_ids: ClassVar[bool] = True
    """The id of a task that is gone is free at once. False where it is remembered for a while."""

    wakeups: ClassVar[bool] = True
    """Who waits in the same process is woken at once by what comes, without time passing. False
    where only looking again after a while tells."""

    policies: ClassVar[bool] = True
    """Whether the queue is fair among keys and has policies."""

    exact_turns: ClassVar[bool] = True
    """Of the keys that are next in the same round, the one that has waited longest is first. False
    where a queue lives in several places: the process that adds a task does not know how far other partitions are,
    so that within a round the order may be another."""

    knows_names: ClassVar[bool] = True
    """`names` lists the queues that hold tasks. False where it is `Unsupported`."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """The clock that the queue is given. It stands still until moved."""
        return ManualClock()

    @pytest.fixture
    def queue(self, clock: ManualClock) -> Queue:
        """Override this: an empty, open queue whose time is `clock`, with a few attempts."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `queue`")

    async def advance(self, queue: Queue, seconds: float) -> None:
        """Let time pass for the queue. One with a server's clock moves its offset too."""
        manual(queue).advance(seconds)

    def now(self, queue: Queue) -> datetime:
        """The queue's present. One with a server's clock overrides this."""
        return queue.clock.now()

    async def passing(self, queue: Queue, waiting: Awaitable[T]) -> T:
        """The result of `waiting`, while time passes for as long as it sleeps."""
        future = asyncio.ensure_future(waiting)
        while not future.done():
            await asleep(queue, future)
            await self.advance(queue, 1)
            await asyncio.sleep(0)
        return await future

    def needs(self, fact: str) -> None:
        """Skip a test if the queue declares that it cannot promise `fact`."""
        if not getattr(self, fact):
            pytest.skip(f"{type(self).__name__} declares {fact} = False")


def task(id: str, **fields: object) -> Task:
    """A task with that id; everything else as it comes, or as given."""
    return Task(id=id, **fields)  # type: ignore[arg-type]


async def put(queue: Queue, *ids: str, name: str = QUEUE, delay: float = 0.0) -> None:
    """Enqueue plain tasks."""
    await queue.enqueue(name, [task(id) for id in ids], delay=delay)


async def pull(queue: Queue, name: str = QUEUE, *, owner: str = "w") -> Delivery:
    """The next task, which must be there."""
    delivery = await queue.dequeue(name, owner=owner, visibility=LEASE)
    assert delivery is not None, f"queue {name!r} has nothing to hand out"
    return delivery


async def drain(queue: Queue, name: str = QUEUE) -> list[str]:
    """The ids of all that is ready, in the order in which it is handed out; each is acked."""
    ids = []
    while (delivery := await queue.dequeue(name, visibility=LEASE)) is not None:
        ids.append(delivery.task.id)
        await queue.ack(delivery.claim)
    return ids


async def bury(queue: Queue, *ids: str, name: str = QUEUE, reason: str = "rejected") -> None:
    """Enqueue tasks and reject them for good, in that order."""
    for id in ids:
        await put(queue, id, name=name)
        await queue.nack((await pull(queue, name)).claim, requeue=False, reason=reason)


async def dead_ids(queue: Queue, name: str = QUEUE) -> list[str]:
    """The ids of the dead, the longest dead first."""
    return [dead.task.id for dead in await queue.dead(name)]


async def asleep(queue: Queue, waiting: asyncio.Future[T]) -> None:
    """Return when `waiting` sleeps on the queue's clock (or is done): the signal that it has
    looked and found nothing."""
    clock = manual(queue)
    while not waiting.done() and not clock.sleepers:  # noqa: ASYNC110 - the clock has no event
        await asyncio.sleep(0)


async def at_once(waiting: Awaitable[T]) -> T:
    """The result of `waiting`, for which no time has to pass. The limit only ends a broken test."""
    return await asyncio.wait_for(waiting, 30)


def manual(queue: Queue) -> ManualClock:
    """The clock of the queue, which has to be one that a test can move."""
    if not isinstance(queue.clock, ManualClock):
        pytest.fail("give the queue the fixture `clock`")
    return queue.clock
