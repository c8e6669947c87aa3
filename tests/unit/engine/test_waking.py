"""Waking: a run that waits costs nothing, and what it waits for is never late for lack of a wake-up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import outlast
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.errors import RunCancelled, SignalTimeout
from outlast.model import Status
from outlast.model.claim import ClaimedRun
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testing.virtual_clock import START

moments: list[timedelta] = []


@pytest.fixture(autouse=True)
def _no_moments() -> None:
    moments.clear()


@outlast.workflow
async def listens() -> str:
    return await outlast.wait_for_signal("go", str)


@pytest.mark.proves("I16", "I24")
async def test_a_signal_that_meets_a_run_about_to_rest_is_taken_at_once() -> None:
    """Sent by another process between the last look and the commit that parks the run, it wakes
    the run now, and not when its lease ends."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    async with app(listens, store=store, clock=clock) as testing:
        run = await testing.start(listens())
        await elsewhere.get(run.id).signal("go", "now")
        assert await run.result() == "now"
        assert clock.now() == START


@pytest.mark.proves("I16", "I24")
async def test_a_signal_wakes_a_run_that_rests() -> None:
    """From the same process or another, no time passes."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    async with app(listens, store=store, clock=clock) as testing:
        for id, sender in (("one", testing), ("two", elsewhere)):
            run = await testing.start(listens(), id=id)
            await clock.settle()
            assert (await testing.get(id).status()).owner is None
            await sender.get(id).signal("go", id)
            assert await run.result() == id
        assert clock.now() == START


@pytest.mark.proves("I15")
async def test_a_run_that_rests_is_nobodys() -> None:
    """Its record says what it waits for and until when; nobody holds it."""

    @outlast.workflow
    async def sleeps() -> None:
        await outlast.sleep(hours=5)

    async with app(sleeps) as testing:
        await testing.start(sleeps(), id="it")
        await testing.clock.settle()
        run = await testing.get("it").status()
        assert (run.status, run.wait_kind, run.owner) == (Status.WAITING, "timer", None)
        assert run.runnable_at == START + timedelta(hours=5)
        await testing.clock.sleep(5 * 3600 - 1)
        assert (await testing.get("it").status()).status is Status.WAITING
        await testing.get("it").result()
        assert testing.clock.now() == START + timedelta(hours=5)


@pytest.mark.proves("I15")
async def test_a_long_wait_between_attempts_is_durable_and_leaves_memory() -> None:
    """Each attempt comes when it is due, after a back-off that grows, and not before."""

    @outlast.step(retry=outlast.Retry(attempts=4, delay=600, backoff=2, jitter=0))
    async def flaky() -> str:
        moments.append(clock.now() - START)
        if len(moments) < 4:
            raise ConnectionError("not yet")
        return "done"

    @outlast.workflow
    async def tries() -> str:
        return await flaky()

    clock = VirtualClock()
    async with app(tries, store=MemoryStore(clock=clock), clock=clock) as testing:
        run = await testing.start(tries(), id="it")
        await clock.settle()
        record = await testing.get("it").status()
        assert (record.status, record.wait_kind, record.owner) == (Status.WAITING, "retry", None)
        assert record.runnable_at == START + timedelta(minutes=10)
        assert await run.result() == "done"
    assert moments == [timedelta(minutes=minutes) for minutes in (0, 10, 30, 70)]


@pytest.mark.proves("I15", "I16")
async def test_a_signal_and_its_timeout_at_the_same_moment() -> None:
    """Both are there when somebody looks: the signal counts, because it came."""

    @outlast.workflow
    async def listens_for_an_hour() -> str:
        try:
            return await outlast.wait_for_signal("go", str, timeout=3600)
        except SignalTimeout:
            return "too late"

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    async with app(listens_for_an_hour, store=store, clock=clock) as testing:
        await testing.start(listens_for_an_hour(), id="it")
        await clock.settle()
    await clock.sleep(7200)
    await elsewhere.get("it").signal("go", "just in time")
    async with app(listens_for_an_hour, store=store, clock=clock) as testing:
        assert await testing.get("it").result() == "just in time"


@pytest.mark.proves("I24")
async def test_a_run_that_works_is_told_of_a_cancel_within_a_third_of_its_lease() -> None:
    """Also by another process, which cannot send a wake-up here."""
    told_at: list[float] = []

    @outlast.step
    async def work() -> None:
        await takes(3600)

    @outlast.workflow
    async def works() -> None:
        try:
            await work()
        finally:
            told_at.append(clock.monotonic())

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    elsewhere = Client(store, codec=JsonCodec())
    async with app(works, store=store, clock=clock, lease=30) as testing:
        run = await testing.start(works(), id="it")
        await clock.sleep(1)
        await elsewhere.get("it").cancel("stop")
        await clock.sleep(10)
        assert len(told_at) == 1
        with pytest.raises(RunCancelled):
            await run.result()


@pytest.mark.proves("I24")
async def test_a_run_that_cannot_be_taken_over_does_not_hold_up_the_others() -> None:
    """A broken history is parked, the next one goes on."""
    clock = VirtualClock()
    store = MemoryStore(clock=clock)

    @outlast.workflow
    async def sleeps() -> str:
        await outlast.sleep(hours=1)
        return "slept"

    async with app(sleeps, store=store, clock=clock) as testing:
        for id in ("a", "b", "c"):
            await testing.start(sleeps(), id=id)
        await clock.settle()
    del store._tables.lives["a"].events[0]
    store._tables.lives["b"].events.clear()
    async with app(sleeps, store=store, clock=clock) as testing:
        assert await testing.get("c").result() == "slept"
        assert not (await testing.get("a").status()).status.terminal
        await testing.get("a").delete(force=True)
        await testing.get("b").delete(force=True)


class Counting(MemoryStore):
    """A store that counts how often somebody looks for runs."""

    looks = 0

    async def claim_runs(self, *args: Any, **options: Any) -> list[ClaimedRun]:
        self.looks += 1
        return await super().claim_runs(*args, **options)


async def test_runs_that_go_their_way_make_nobody_look_for_work() -> None:
    """Only what others could take up is a reason to look, not each commit or each end."""

    @outlast.step
    async def work() -> None:
        await takes(1)

    @outlast.workflow
    async def works() -> None:
        for _ in range(3):
            await work()

    clock = VirtualClock()
    store = Counting(clock=clock)
    async with app(works, store=store, clock=clock) as testing:
        await clock.settle()
        before = store.looks
        for _ in range(20):
            await (await testing.start(works())).result()
        assert store.looks == before


@pytest.mark.proves("I24")
async def test_an_engine_without_room_looks_again_when_there_is() -> None:
    """No time passes between the end of one run and the beginning of the next."""

    @outlast.workflow
    async def is_short(number: int) -> int:
        return number

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(is_short, store=store, clock=clock) as testing:
        testing._engine.claimer.concurrency = 1
        runs = [await testing.start(is_short(n), here=False) for n in range(5)]
        assert [await run.result() for run in runs] == list(range(5))
        assert clock.now() == START


@pytest.mark.proves("I24")
async def test_a_run_that_only_naps_leaves_its_place_to_others() -> None:
    """One that is due again in a moment stays in memory, but not where that keeps another out."""

    @outlast.workflow
    async def naps() -> None:
        while True:
            await outlast.sleep(1)

    @outlast.workflow
    async def is_short() -> str:
        await outlast.sleep(1)
        return "done"

    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    async with app(naps, is_short, store=store, clock=clock) as testing:
        testing._engine.claimer.concurrency = 1
        await testing.start(naps())
        run = await testing.start(is_short(), here=False)
        assert await run.result(timeout=60) == "done"


@outlast.workflow
async def naps() -> None:
    await outlast.sleep(10)


class BehindStore(MemoryStore):
    """Its clock is a little behind ours: what is due for us is not due there yet."""

    async def claim_runs(self, *args: Any, **kwargs: Any) -> list[ClaimedRun]:
        if self.clock.now() == START + timedelta(seconds=10):
            return []
        return await super().claim_runs(*args, **kwargs)


async def test_what_is_due_by_our_clock_only_is_looked_for_soon() -> None:
    """A run that could not be had at the moment it was due is had in the next, not a second later."""
    clock = VirtualClock()
    async with app(naps, store=BehindStore(clock=clock), clock=clock) as testing:
        await (await testing.start(naps())).result()
        assert timedelta(0) < clock.now() - START - timedelta(seconds=10) < timedelta(seconds=0.1)
