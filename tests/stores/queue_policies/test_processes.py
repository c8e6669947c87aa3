"""The rules of a queue under processes that are killed: never more than allowed, nothing leaked."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outlast.model import Task
from outlast.model.ids import new_id
from outlast.model.queue_policy import QueuePolicy, Rate
from tests.stores.postgres import places as postgres
from tests.stores.queue_policies.crew import QUEUES, Crew, Interval, Place, most_at_once
from tests.stores.redis import servers as redis

WORKERS, KILLS, TASKS = 8, 8, 160
KEYS = ("", "a", "b", "c", "d")
RULES = QueuePolicy(queue="gpu", concurrency=3, key_concurrency=1, rate=Rate(20, 0.25))
KINDS = [
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.server),
    pytest.param("redis", marks=pytest.mark.server),
    pytest.param("redis-cluster", marks=pytest.mark.server),
]


def place_of(kind: str, folder: Path) -> Place:
    """An empty queue of that kind."""
    match kind:
        case "sqlite":
            return Place(kind, str(folder / "queue.db"))
        case "postgres":
            return Place(kind, postgres.direct(), f"policy_{new_id().replace('-', '')}")
        case _:
            variable = redis.CLUSTER if kind == "redis-cluster" else redis.SINGLE
            return Place(kind, redis.url_of(variable), redis.own_prefix())


async def fill(place: Place) -> set[str]:
    """Tasks of many runs, so that they are in all partitions; the ids of all."""
    tasks = [
        Task(id=f"t{n}", run_id=f"r{n}", key=KEYS[n % len(KEYS)], priority=n % 3)
        for n in range(TASKS)
    ]
    async with place.queue() as queue:
        await queue.set_policy(RULES, by="test")
        for number, name in enumerate(QUEUES):
            await queue.enqueue(name, tasks[number :: len(QUEUES)])
    return {task.id for task in tasks}


async def left(place: Place) -> tuple[int, int, int]:
    """How many tasks wait or are dead, and how many places are taken."""
    async with place.queue() as queue:
        stats = await queue.stats("gpu")
        return stats.ready + stats.delayed, stats.in_flight, stats.dead


def until(deadline: float) -> Iterator[None]:
    """Again and again; an error if it takes too long."""
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)  # noqa: TID251 - processes do not send a wake-up
    pytest.fail("it took too long")


@pytest.mark.timeout(180)
@pytest.mark.proves("I22")
@pytest.mark.parametrize("kind", KINDS)
def test_limits_hold_whoever_dies(kind: str, tmp_path: Path) -> None:
    """Processes take tasks and are killed at any moment. There are never more under way than the
    queue allows, nor more of a key, nor do more begin in a while; all is done in the end, and every
    place is free again."""
    place = place_of(kind, tmp_path)
    everything = asyncio.run(fill(place))
    crew, luck = Crew(place, tmp_path / "ledger", WORKERS), random.Random(7)
    deadline = time.monotonic() + 120
    try:
        for kills in range(KILLS):
            for _ in until(deadline):
                if len(crew.intervals()) >= (kills + 1) * TASKS // (2 * KILLS):
                    break
            crew.kill(luck.randrange(WORKERS))
        for _ in until(deadline):
            if asyncio.run(left(place)) == (0, 0, 0):
                break
    finally:
        crew.dismiss()
    done = crew.intervals()
    assert {one.task for one in done} == everything
    assert 1 < most_at_once(done) <= 3
    for key in KEYS[1:]:
        assert most_at_once([one for one in done if one.key == key]) == 1
    assert RULES.rate is not None
    starts = sorted(one.claimed for one in done)
    gaps = zip(starts, starts[RULES.rate.limit :], strict=False)
    assert all(later - first > RULES.rate.per - 0.000_002 for first, later in gaps)


def test_the_ledger_counts() -> None:
    """What it is read by is right: one after the other is one, one in another is two."""
    apart = [Interval(0, 1, 2, "a", "x"), Interval(0, 2, 3, "a", "y"), Interval(0, 4, 5, "", "z")]
    assert most_at_once(apart) == 1
    assert most_at_once([*apart, Interval(0, 1.5, 4.5, "b", "w")]) == 2
