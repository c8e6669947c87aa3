"""Flow on PostgreSQL: the same choices as the memory store's, at a cost that does not grow."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.model.flow import Flow, Rate
from outlast.model.task import Delivery, Task
from outlast.stores.memory.queue import MemoryQueue
from outlast.stores.postgres import PostgresQueue, PostgresStore
from outlast.testing.clock import ManualClock
from tests.postgres.places import SCHEMA, FreshQueue, ask, direct

pytestmark = pytest.mark.server

SCOPE, RENDER, TRAIN = "gpu", "gpu/render", "gpu/train"
KEYS = ("", "a", "b", "c", "d")


@pytest.fixture
async def queue(clock: ManualClock) -> AsyncIterator[PostgresQueue]:
    """An empty queue."""
    async with FreshQueue(clock=clock, max_attempts=3) as queue:
        yield queue


def some_rules(chance: random.Random) -> Flow:
    """Rules, each of which may be there."""

    def maybe(low: int, high: int) -> int | None:
        return chance.randint(low, high) if chance.random() < 0.4 else None

    rate, key_rate, ageing = maybe(5, 20), maybe(1, 8), maybe(1, 100)
    return Flow(
        queue=SCOPE,
        concurrency=maybe(3, 30),
        key_concurrency=maybe(1, 9),
        rate=None if rate is None else Rate(rate, 10.0),
        key_rate=None if key_rate is None else Rate(key_rate, 7.0),
        weights={key: chance.choice([0.3, 2.0, 7.0]) for key in KEYS if chance.random() < 0.3},
        ageing=None if ageing is None else float(ageing),
    )


@pytest.mark.proves("I22")
@pytest.mark.parametrize("seed", range(6))
async def test_it_decides_as_the_memory_store_does(
    queue: PostgresQueue, clock: ManualClock, seed: int
) -> None:
    """Whatever the rules are, and whatever happens meanwhile, the same tasks are handed out."""
    chance = random.Random(seed)
    model = MemoryQueue(clock=clock, max_attempts=3)
    both = (queue, model)
    flow = some_rules(chance)
    for one in both:
        await one.set_flow(flow, by="test")
    for name in (RENDER, TRAIN):
        # More than are handed out: a line that ends is forgotten here, and remembered there.
        tasks = [
            Task(id=f"{name}-{key}-{n}", key=key, priority=chance.randint(0, 2))
            for key in KEYS
            for n in range(80)
        ]
        chance.shuffle(tasks)
        for one in both:
            await one.enqueue(name, tasks)
    held: list[tuple[Delivery, Delivery]] = []
    handed = 0
    for _ in range(40):
        asked = chance.choice([(RENDER,), (TRAIN,), (RENDER, TRAIN)])
        limit = chance.choice([1, 2, 10])
        found = [
            {
                (d.task.queue, d.task.id): d
                for d in await one.take_many(asked, owner="w", visibility=20.0, limit=limit)
            }
            for one in both
        ]
        assert set(found[0]) == set(found[1])
        handed += len(found[0])
        held += [(found[0][name], found[1][name]) for name in found[0]]
        chance.shuffle(held)
        while held and chance.random() < 0.6:
            pair = held.pop()
            fate = chance.choice(["ack", "ack", "nack", "bury", "keep", "forget"])
            for one, delivery in zip(both, pair, strict=True):
                if delivery.claim.expires_at is not None and fate != "forget":
                    await settle(one, delivery, fate)
        clock.advance(chance.choice([0.0, 0.5, 3.0, 8.0]))
        held = [pair for pair in held if (pair[0].claim.expires_at or clock.now()) > clock.now()]
        if chance.random() < 0.05:
            flow = some_rules(chance)
            for one in both:
                await one.set_flow(flow, by="test")
    assert handed > 20
    assert (await queue.stats(SCOPE)) == (await model.stats(SCOPE))


async def settle(queue: PostgresQueue | MemoryQueue, delivery: Delivery, fate: str) -> None:
    """What becomes of a task that was handed out."""
    match fate:
        case "ack":
            await queue.ack(delivery.claim)
        case "nack":
            await queue.nack(delivery.claim, delay=5.0)
        case "bury":
            await queue.nack(delivery.claim, requeue=False)
        case "keep":
            await queue.extend(delivery.claim, 25.0)
