"""The watchdog: a run that this process holds and does nothing for is found, and said wherever people look."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import outlast
from outlast.cli.commands.doctor import life_of
from outlast.errors import Unavailable
from outlast.model import Event, Item, Run, Status
from outlast.model.claim import Worker
from outlast.query.why import reasons
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualApp, VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testkit.faults import FaultyStore, Outage


@outlast.step
async def long(seconds: float = 3600) -> None:
    await takes(seconds)


@outlast.step
async def item(number: int) -> int:
    await takes(100 * number)
    return number


@outlast.workflow
async def works() -> None:
    await long()


@outlast.workflow
async def maps() -> list[int]:
    return await outlast.map(item, [1, 2, 3], concurrency=1)


@outlast.workflow
async def busy() -> str:
    """All that a run may have open while it works as it should."""
    await asyncio.gather(long(100), outlast.sleep(200), outlast.wait_for_signal("go", timeout=300))
    await outlast.map(item, [1, 2, 3], concurrency=2)
    await works()
    return "done"


def forget(testing: VirtualApp, key: str) -> None:
    """What a fault of the engine would do: a body ends, and its end reaches nobody."""
    [drive] = testing._engine.drivers._drivers.values()
    body = drive.in_flight._running.pop(key)
    drive.in_flight._cut[key] = False
    body.cancel()


@pytest.mark.proves("I24")
async def test_a_run_for_which_nothing_is_done_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the log, with what to do; by the app; in the worker's word, and so in `outlast why`."""
    async with app(works) as testing:
        await testing.start(works(), id="r")
        await testing.clock.sleep(30)
        assert testing.troubles == {}
        forget(testing, "long")
        caplog.set_level(logging.ERROR, "outlast.engine")
        await testing.clock.sleep(60)
        assert "'long' is open, and its process does not execute it" in testing.troubles["r"]
        said = [line for line in caplog.messages if "is stuck" in line]
        assert len(said) == 1
        assert "Restart this worker" in said[0]
        assert testing._word().troubles == testing.troubles


@pytest.mark.proves("I24")
async def test_a_map_for_which_nothing_is_done_is_reported() -> None:
    """Its items have ended, it has not, and nothing of it runs."""
    async with app(maps) as testing:
        await testing.start(maps(), id="r")
        await testing.clock.sleep(30)
        [drive] = testing._engine.drivers._drivers.values()
        [mapping] = drive.in_flight._maps.values()
        mapping._todo.clear()
        await testing.clock.sleep(300)
        assert list(testing.troubles) == ["r"]


async def test_runs_that_work_or_wait_are_not_reported() -> None:
    """Steps, timers, signals, maps, children, retries, a pause: nothing of that is trouble."""
    async with app(busy, works) as testing:
        handle = await testing.start(busy(), id="r")
        troubles: dict[str, str] = {}
        for minute in range(90):
            await testing.clock.sleep(60)
            troubles |= testing.troubles
            if minute == 2:
                await handle.signal("go")
            if minute == 10:
                await testing.get("r").pause()
            if minute == 20:
                await testing.get("r").resume()
        assert await handle.result() == "done"
        assert troubles == {}


class Unreadable(MemoryStore):
    """Histories of runs cannot be read."""

    broken = False

    async def history(self, run_id: str, **options: Any) -> list[Event]:
        if self.broken:
            raise Unavailable("this page is damaged")
        return await super().history(run_id, **options)


async def test_a_takeover_that_fails_again_and_again_is_reported() -> None:
    """Until it succeeds: then it is no trouble any more."""

    @outlast.workflow(name="waits")
    async def waits() -> str:
        return await outlast.wait_for_signal("go", str)

    clock = VirtualClock()
    store = Unreadable(clock=clock)
    async with app(waits, store=store, clock=clock) as testing:
        await testing.start(waits(), id="r")
        await clock.settle()
        store.broken = True
        await testing.get("r").signal("go", "on")
        await clock.sleep(3600)
        assert "could not be taken over" in testing.troubles["r"]
        assert "this page is damaged" in testing.troubles["r"]
        store.broken = False
        assert await testing.get("r").result() == "on"
        assert testing.troubles == {}


async def test_a_run_that_failed_here_and_goes_on_elsewhere_is_no_trouble_for_long() -> None:
    """Another worker has taken it over, and ended it: this one never hears of that."""

    @outlast.workflow(name="waits")
    async def waits() -> str:
        return await outlast.wait_for_signal("go", str)

    clock = VirtualClock()
    inner = MemoryStore(clock=clock)
    outage = Outage(clock)
    away = FaultyStore(inner, outage)
    async with app(waits, store=away, clock=clock) as testing:
        await testing.start(waits(), id="r")
        await clock.settle()
        outage.begin(1800, only={"history"})
        await testing.get("r").signal("go", "on")
        await clock.sleep(300)
        assert list(testing.troubles) == ["r"]
        outage.begin(7200, only={"history", "claim_runs"})
        async with outlast.App(inner, workflows=[waits]) as other:
            assert await other.get("r").result() == "on"
        await clock.sleep(600)
        assert testing.troubles == {}


class Odd(MemoryStore):
    """Inboxes cannot be read, for a reason that no store names."""

    broken = False

    async def inbox(self, run_id: str, **options: Any) -> list[Item]:
        if self.broken:
            raise RuntimeError("odd")
        return await super().inbox(run_id, **options)


async def test_a_run_that_is_dropped_again_and_again_is_reported() -> None:
    """Each takeover succeeds, and each time the run is dropped: that is no progress, either."""

    @outlast.workflow(name="waits")
    async def waits() -> str:
        return await outlast.wait_for_signal("go", str)

    clock = VirtualClock()
    store = Odd(clock=clock)
    async with app(waits, store=store, clock=clock) as testing:
        await testing.start(waits(), id="r")
        await clock.settle()
        store.broken = True
        await testing.get("r").signal("go", "on")
        await clock.sleep(3600)
        assert "it was dropped" in testing.troubles["r"]
        assert "odd" in testing.troubles["r"]
        store.broken = False
        assert await testing.get("r").result() == "on"
        assert testing.troubles == {}


async def test_doctor_shows_what_workers_say() -> None:
    """Each run that is stuck in a worker which lives, with what to do."""
    async with MemoryStore() as store:
        await store.heartbeat(Worker(owner="w1", troubles={"r": "'a' is open"}), 60)
        said = [one.what async for one in life_of(store)]
    assert "run r is stuck in worker w1: 'a' is open" in said


def test_why_shows_what_a_worker_says_of_a_run() -> None:
    """`outlast why` names the worker; it says who may try what others could not go on with."""
    run = Run(id="r", workflow="w", status=Status.RUNNING)
    stuck = Worker(owner="w1", workflows=("w",), troubles={"r": "'a' is open {"})
    [said, *_] = reasons(run, [], now=run.created_at, workers=[stuck])
    assert "Its worker 'w1' reports that it is stuck: 'a' is open {" in said.text.format()
    other = Worker(owner="w2", workflows=("w",), code="b")
    run = Run(id="r", workflow="w", status=Status.WAITING, rejected_by="a", error="TypeError: {}")
    [said, *_] = reasons(run, [], now=run.created_at, workers=[other])
    assert "Workers with other code may continue it, such as 'w2'" in said.text.format()
    [said, *_] = reasons(run, [], now=run.created_at, workers=[])
    assert "No live worker has other code" in said.text.format()
    waits = Run(id="r", workflow="w", status=Status.WAITING)
    found = reasons(waits, [], now=run.created_at, inbox=1, workers=[])
    assert "until a worker with the code of 'w' starts: none is alive" in found[0].text
