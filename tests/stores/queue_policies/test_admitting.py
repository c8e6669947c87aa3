"""Runs that wait in a queue while those who let them begin are killed, or stand still past their lease."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

import outlast
from outlast.model.query import RunQuery
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Run, Status
from tests.stores.queue_policies.crew import Interval, Place, most_at_once
from tests.stores.queue_policies.doormen import LEASE, RULES, Doormen, job, store_of
from tests.stores.queue_policies.test_processes import KINDS, place_of, until

PROCESSES, RUNS = 4, 32
KEYS = ("", "a", "b", "c")


def place_in_queue(run_id: str) -> QueueOptions:
    """Keys and priorities in turn."""
    number = int(run_id.removeprefix("job"))
    return QueueOptions(RULES.queue, key=KEYS[number % len(KEYS)], priority=number % 3)


async def start(place: Place) -> list[str]:
    """Many runs, that wait for their turn; their ids."""
    ids = [f"job{number}" for number in range(RUNS)]
    async with store_of(place) as store:
        async with store.queue() as queue:
            await queue.set_policy(RULES, by="test")
        async with outlast.App(store) as app:
            await app.start_many(
                {id: job(id) for id in ids}, queue=lambda call: place_in_queue(call.args[0])
            )
    return ids


async def ended(place: Place) -> list[Run]:
    """The runs that are over."""
    async with store_of(place) as store:
        return [run async for run in store.find_all(RunQuery()) if run.status.terminal]


async def taken(place: Place) -> tuple[int, int, int]:
    """How many wait, how many places are taken, how many tickets are dead."""
    async with store_of(place) as store, store.queue() as queue:
        stats = await queue.stats(RULES.queue)
        return stats.ready + stats.delayed, stats.in_flight, stats.dead


@pytest.mark.timeout(180)
@pytest.mark.proves("I22")
@pytest.mark.parametrize("kind", KINDS)
def test_runs_begin_within_the_rules_whoever_dies(kind: str, tmp_path: Path) -> None:
    """From its first step to its end a run has a place: never are there more than the queue allows, nor
    more of a key. All come to their end, and every place is free again."""
    place = place_of(kind, tmp_path)
    ids = asyncio.run(start(place))
    deadline = time.monotonic() + 120
    doormen = Doormen(place, tmp_path / "ledger", PROCESSES, random.Random(3))
    try:
        for number, disturb in enumerate(("kill", "stop", "kill", "stop")):
            for _ in until(deadline):
                if len(doormen.begun()) > number * RUNS // 8:
                    break
            if disturb == "kill":
                doormen.kill()
                continue
            still, since = doormen.stop(), time.monotonic()
            for _ in until(deadline):  # so long that all it holds is somebody else's
                if time.monotonic() - since > 1.5 * LEASE:
                    break
            doormen.go_on(still)
        for _ in until(deadline):
            if asyncio.run(taken(place)) == (0, 0, 0):
                break
        over = asyncio.run(ended(place))
    finally:
        doormen.dismiss()
    assert {run.id for run in over if run.status is Status.COMPLETED} == set(ids)
    begun = doormen.begun()
    intervals = [
        Interval(
            begun[run.id],
            begun[run.id],
            run.ended_at.timestamp(),
            place_in_queue(run.id).key,
            run.id,
        )
        for run in over
        if run.ended_at is not None
    ]
    assert len(intervals) == RUNS
    assert RULES.concurrency is not None
    assert 1 < most_at_once(intervals) <= RULES.concurrency
    for key in KEYS[1:]:
        assert most_at_once([one for one in intervals if one.key == key]) == 1
