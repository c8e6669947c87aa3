"""Conformance of a queue: random programs, answered as the memory queue answers them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.model.run_contents import Delivery
from outlast.ports.queue import Queue
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.queue_base import QueueSuite, task

QUEUES = ("gpu/render", "gpu/train", "mail")
KEYS = ("", "a", "b", "c", "d", "e")
LEASE = 600.0


class _Pair:
    """The queue under test and the simplest one, with the same calls."""

    def __init__(self, suite: QueueSuite, queue: Queue, seed: int) -> None:
        from outlast.stores.memory import MemoryQueue

        self._suite = suite
        self._tested = queue
        self._model = MemoryQueue(clock=ManualClock(), max_attempts=queue.max_attempts)
        self._luck = random.Random(seed)
        self._held: list[tuple[Delivery, Delivery]] = []
        self._tasks = 0

    async def go(self, steps: int) -> None:
        """Do so many random things."""
        verbs = [self.enqueue] * 3 + [self.take] * 5 + [self.settle] * 3 + [self.wait, self.rule]
        for _ in range(steps):
            await self._luck.choice(verbs)()
        for name in ("gpu", "mail"):
            tested, model = await self._tested.stats(name), await self._model.stats(name)
            assert (tested.ready, tested.delayed, tested.in_flight, tested.dead) == (
                model.ready,
                model.delayed,
                model.in_flight,
                model.dead,
            )
            assert (tested.blocked_by, tested.policy) == (model.blocked_by, model.policy)

    async def enqueue(self) -> None:
        luck = self._luck
        tasks = []
        for _ in range(luck.randint(1, 12)):
            self._tasks += 1
            key, priority = luck.choice(KEYS), luck.choice([0, 0, 1, 2])
            tasks.append(task(f"t{self._tasks}", key=key, priority=priority))
        name, delay = luck.choice(QUEUES), luck.choice([0.0, 0.0, 0.0, 150.0])
        for queue in (self._tested, self._model):
            await queue.enqueue(name, tasks, delay=delay)

    async def take(self) -> None:
        names = self._luck.choice([QUEUES[:2], QUEUES[:1], QUEUES[2:]])
        limit = self._luck.choice([1, 2, 5, 40])
        tested = await self._taken(self._tested, names, limit)
        model = await self._taken(self._model, names, limit)
        assert [one.task.id for one in tested] == [one.task.id for one in model]
        assert [one.task.attempt for one in tested] == [one.task.attempt for one in model]
        self._held += zip(tested, model, strict=True)

    async def _taken(self, queue: Queue, names: Sequence[str], limit: int) -> list[Delivery]:
        taken = await queue.take_many(names, owner="w", visibility=LEASE, limit=limit)
        return sorted(taken, key=lambda one: int(one.task.id[1:]))

    async def settle(self) -> None:
        luck = self._luck
        luck.shuffle(self._held)
        verb = luck.choice(["ack", "ack", "nack", "later", "bury"])
        for pair in [self._held.pop() for _ in range(min(luck.randint(1, 6), len(self._held)))]:
            for queue, one in zip((self._tested, self._model), pair, strict=True):
                match verb:
                    case "ack":
                        await queue.ack(one.claim)
                    case "nack":
                        await queue.nack(one.claim)
                    case "later":
                        await queue.nack(one.claim, delay=250)
                    case "bury":
                        await queue.nack(one.claim, requeue=False)

    async def wait(self) -> None:
        # Past leases only when nothing is held: whose lease has ended is taken by anybody.
        seconds = 100.0 if self._held else self._luck.choice([100.0, 1000.0])
        await self._suite.advance(self._tested, seconds)
        assert isinstance(self._model.clock, ManualClock)
        self._model.clock.advance(seconds)
        if self._held and self._luck.random() < 0.7:
            for tested, model in self._held:
                await self._tested.extend(tested.claim, LEASE)
                await self._model.extend(model.claim, LEASE)
        elif self._held:
            await self._suite.advance(self._tested, 2 * LEASE)
            self._model.clock.advance(2 * LEASE)
            self._held.clear()

    async def rule(self) -> None:
        luck = self._luck

        def some(*values: int) -> int | None:
            return luck.choice([None, *values])

        rate, key_rate = some(3, 9), some(1, 3)
        policy = QueuePolicy(
            queue=luck.choice(["gpu", "mail"]),
            concurrency=some(2, 5, 20),
            key_concurrency=some(1, 3),
            rate=None if rate is None else Rate(rate, 130.0),
            key_rate=None if key_rate is None else Rate(key_rate, 130.0),
            weights={key: luck.choice([0.5, 2.0, 7.0]) for key in KEYS[1:3]},
            ageing=luck.choice([None, 70.0]),
            paused=luck.random() < 0.1,
        )
        for queue in (self._tested, self._model):
            await queue.set_policy(policy, by="test")


class PolicyModel(QueueSuite):
    """Whatever is asked for in whatever order, the rules lead to the same answers everywhere."""

    @pytest.mark.proves("I22")
    @pytest.mark.parametrize("seed", range(8))
    async def test_a_random_program(self, queue: Queue, seed: int) -> None:
        """The queue hands out what the memory queue hands out, task by task."""
        self.needs("policies")
        self.needs("exact_turns")
        await _Pair(self, queue, seed).go(60)
