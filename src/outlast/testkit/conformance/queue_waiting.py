"""Conformance of a queue: waiting for work, closing, and calls that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from outlast.errors import InvalidId, InvalidValue, QueueClosed, UsageError
from outlast.model.claim import Claim
from outlast.model.run_contents import Delivery
from outlast.model.times import EPOCH
from outlast.ports.queue import Queue
from outlast.testkit.conformance.queue_base import (
    LEASE,
    QUEUE,
    QueueSuite,
    asleep,
    at_once,
    bury,
    drain,
    pull,
    put,
    task,
)

CLAIM = Claim(owner="w", token=1, claimed_at=EPOCH, task_id="a", queue=QUEUE)
Call = Callable[[Queue], Awaitable[object]]

CALLS: dict[str, Call] = {
    "enqueue": lambda queue: queue.enqueue(QUEUE, [task("a")]),
    "take": lambda queue: queue.take(QUEUE, owner="w", visibility=LEASE),
    "dequeue": lambda queue: queue.dequeue(QUEUE),
    "ack": lambda queue: queue.ack(CLAIM),
    "nack": lambda queue: queue.nack(CLAIM),
    "extend": lambda queue: queue.extend(CLAIM, LEASE),
    "len": lambda queue: queue.len(QUEUE),
    "dead": lambda queue: queue.dead(QUEUE),
    "redrive": lambda queue: queue.redrive(QUEUE),
    "purge": lambda queue: queue.purge(QUEUE),
}

WRONG: dict[str, tuple[type[UsageError], Call]] = {
    "no queue name": (InvalidId, lambda queue: queue.enqueue("", [task("x")])),
    "control character": (InvalidId, lambda queue: queue.enqueue("a\nb", [task("x")])),
    "no task id": (InvalidId, lambda queue: queue.enqueue(QUEUE, [task("x"), task("")])),
    "long task id": (InvalidId, lambda queue: queue.enqueue(QUEUE, [task("x" * 2000)])),
    "negative delay": (InvalidValue, lambda queue: queue.enqueue(QUEUE, [task("x")], delay=-1)),
    "delay not a number": (
        InvalidValue,
        lambda queue: queue.enqueue(QUEUE, [task("x")], delay=float("nan")),
    ),
    "endless delay": (
        InvalidValue,
        lambda queue: queue.enqueue(QUEUE, [task("x")], delay=float("inf")),
    ),
    "time without zone": (
        InvalidValue,
        lambda queue: queue.enqueue(QUEUE, [task("x", run_at=EPOCH.replace(tzinfo=None))]),
    ),
    "dequeue from nowhere": (InvalidId, lambda queue: queue.dequeue("")),
    "no owner": (InvalidId, lambda queue: queue.dequeue(QUEUE, owner="")),
    "no lease": (InvalidValue, lambda queue: queue.dequeue(QUEUE, visibility=0)),
    "negative lease": (InvalidValue, lambda queue: queue.dequeue(QUEUE, visibility=-1)),
    "lease of years": (InvalidValue, lambda queue: queue.dequeue(QUEUE, visibility=1e9)),
    "negative wait": (InvalidValue, lambda queue: queue.dequeue(QUEUE, wait=-1)),
    "wait not a number": (InvalidValue, lambda queue: queue.dequeue(QUEUE, wait=float("nan"))),
    "negative backoff": (InvalidValue, lambda queue: queue.nack(CLAIM, delay=-1)),
    "backoff not a number": (InvalidValue, lambda queue: queue.nack(CLAIM, delay=float("nan"))),
    "extend by nothing": (InvalidValue, lambda queue: queue.extend(CLAIM, 0)),
    "no dead": (InvalidValue, lambda queue: queue.dead(QUEUE, limit=0)),
    "all the dead": (InvalidValue, lambda queue: queue.dead(QUEUE, limit=10**9)),
}


class Waiting(QueueSuite):
    """Dequeue that waits, close, bad input."""

    @pytest.mark.proves("M-12", "C-22")
    async def test_waiting_in_vain_gives_none(self, queue: Queue) -> None:
        """When the time is up there is still nothing: None, and not before."""
        begin = queue.clock.monotonic()
        assert await self.passing(queue, queue.dequeue(QUEUE, wait=7)) is None
        assert queue.clock.monotonic() - begin >= 7

    @pytest.mark.proves("M-12", "M-44")
    async def test_a_task_that_is_there_needs_no_wait(self, queue: Queue) -> None:
        """Waiting begins only when there is nothing."""
        await put(queue, "a")
        got = await queue.dequeue(QUEUE, wait=60)
        assert got is not None

    @pytest.mark.proves("M-12", "M-44")
    async def test_an_enqueue_wakes_who_waits(self, queue: Queue) -> None:
        """A waiting consumer gets the task that comes."""
        waiting = _waiting(queue)
        await asleep(queue, waiting)
        await put(queue, "a")
        assert (
            _id(await (at_once(waiting) if self.wakeups else self.passing(queue, waiting))) == "a"
        )

    @pytest.mark.proves("M-12", "M-44")
    async def test_time_wakes_who_waits(self, queue: Queue) -> None:
        """A delayed task becomes ready without anybody sending a wake-up."""
        await put(queue, "a", delay=20)
        begin = queue.clock.monotonic()
        assert _id(await self.passing(queue, _waiting(queue))) == "a"
        assert queue.clock.monotonic() - begin >= 19

    @pytest.mark.proves("M-12", "M-25")
    async def test_an_expiring_lease_wakes_who_waits(self, queue: Queue) -> None:
        """The task of a dead worker reaches the one who waits."""
        await put(queue, "a")
        await pull(queue)
        got = await self.passing(queue, _waiting(queue))
        assert got is not None
        assert got.task.attempt == 2

    @pytest.mark.proves("M-12", "M-14")
    async def test_a_nack_wakes_who_waits(self, queue: Queue) -> None:
        """What one gives back the other gets, long before the lease would have ended."""
        await put(queue, "a")
        held = await pull(queue)
        waiting = _waiting(queue)
        await asleep(queue, waiting)
        await queue.nack(held.claim)
        assert (
            _id(await (at_once(waiting) if self.wakeups else self.passing(queue, waiting))) == "a"
        )

    @pytest.mark.proves("M-12", "C-21")
    async def test_a_redrive_wakes_who_waits(self, queue: Queue) -> None:
        """A dead task brought back is work like any other."""
        await bury(queue, "a")
        waiting = _waiting(queue)
        await asleep(queue, waiting)
        await queue.redrive(QUEUE)
        assert (
            _id(await (at_once(waiting) if self.wakeups else self.passing(queue, waiting))) == "a"
        )

    @pytest.mark.proves("M-12")
    async def test_one_task_goes_to_one_of_two(self, queue: Queue) -> None:
        """Both are woken, one gets it, the other waits on and goes empty-handed."""
        both = asyncio.gather(_waiting(queue, 20), _waiting(queue, 20))
        await asleep(queue, both)
        await put(queue, "a")
        got = await self.passing(queue, both)
        assert sorted(map(_id, got)) == ["", "a"]

    @pytest.mark.proves("M-10", "M-12")
    async def test_a_cancelled_wait_takes_nothing(self, queue: Queue) -> None:
        """A caller that gave up leaves the task to others."""
        waiting = _waiting(queue)
        await asleep(queue, waiting)
        waiting.cancel()
        await asyncio.wait([waiting])
        await put(queue, "a")
        assert (await pull(queue)).task.attempt == 1

    # -- closing ------------------------------------------------------------------------------

    @pytest.mark.proves("M-16", "C-22")
    @pytest.mark.parametrize("name", CALLS)
    async def test_a_closed_queue_says_so(self, queue: Queue, name: str) -> None:
        """Every call on it raises the same typed error."""
        await queue.close()
        with pytest.raises(QueueClosed):
            await CALLS[name](queue)

    @pytest.mark.proves("M-16", "C-22")
    async def test_closing_ends_a_wait(self, queue: Queue) -> None:
        """A waiting call raises at once, and does not wait until its timeout."""
        waiting = _waiting(queue)
        await asleep(queue, waiting)
        await queue.close()
        with pytest.raises(QueueClosed):
            await (at_once(waiting) if self.wakeups else self.passing(queue, waiting))

    @pytest.mark.proves("M-16")
    async def test_closing_twice_is_fine_and_tasks_stay(self, queue: Queue) -> None:
        """Close is about this object: opened again, it hands out what was there."""
        await put(queue, "a")
        await queue.close()
        await queue.close()
        await queue.open()
        await queue.open()
        assert await drain(queue) == ["a"]

    # -- wrong calls --------------------------------------------------------------------------

    @pytest.mark.proves("M-11", "M-12", "M-14")
    @pytest.mark.parametrize("name", WRONG)
    async def test_bad_input_is_refused_before_anything_happens(
        self, queue: Queue, name: str
    ) -> None:
        """A typed error, nothing written, and the queue goes on working."""
        error, call = WRONG[name]
        with pytest.raises(error):
            await call(queue)
        assert await queue.dequeue(QUEUE) is None
        await put(queue, "a")
        assert await drain(queue) == ["a"]


def _waiting(queue: Queue, seconds: float = 60.0) -> asyncio.Task[Delivery | None]:
    return asyncio.ensure_future(queue.dequeue(QUEUE, visibility=LEASE, wait=seconds))


def _id(delivery: Delivery | None) -> str:
    return "" if delivery is None else delivery.task.id
