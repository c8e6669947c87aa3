"""A machine whose clock is set: timers and leases of a store in a file, or in memory, go on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import outlast
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.ports.clock import SteadyClock, SystemClock
from outlast.stores.memory import MemoryStore
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance.scenario import begin_runnable, claimed_ids

TTL = 60.0
HOUR, YEAR = timedelta(hours=1), timedelta(days=365)


class Machine(SystemClock):
    """The clock of a machine, in the hands of a test: `at` is what an administrator sets."""

    def __init__(self) -> None:
        self.at = datetime(2030, 1, 1, tzinfo=UTC)
        self.passed = 0.0

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.passed

    def pass_(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)
        self.passed += seconds


class TestSteadyClock:
    """What time it is when the clock of the machine is set."""

    def test_it_goes_with_the_machine(self) -> None:
        """Forward too, and over a suspend, in which the monotonic clock may stand still."""
        machine = ManualClock()
        steady = SteadyClock(machine)
        machine.advance(10)
        assert steady.now() == machine.now()
        machine.set(machine.now() + HOUR)
        assert steady.now() == machine.now()

    def test_it_does_not_go_back(self) -> None:
        """It goes on from where it was, a little slower, until the machine has caught up."""
        machine = ManualClock()
        steady = SteadyClock(machine)
        before = steady.now()
        machine.set(before - HOUR)
        machine.advance(100)
        assert steady.now() == before + timedelta(seconds=95)
        machine.advance(20 * 3600)
        assert steady.now() == machine.now()

    def test_a_clock_that_was_far_ahead_does_not_count(self) -> None:
        """A year ahead for a minute: back to the right time at once, and what was recorded then is
        not believed."""
        machine = ManualClock()
        steady = SteadyClock(machine)
        right = machine.now()
        machine.set(right + YEAR)
        assert steady.now() == right + YEAR
        machine.set(right)
        assert steady.now() == right
        assert not steady.heard(right + YEAR)
        assert steady.heard(right + HOUR)
        assert steady.now() == right + HOUR


@pytest.fixture(params=["memory", "sqlite"])
def store_on(request: pytest.FixtureRequest, path: Path) -> Callable[[Machine], Store]:
    """Makes a store on a machine."""
    if request.param == "memory":
        return lambda machine: MemoryStore(clock=machine)
    return lambda machine: SqliteStore(path, clock=machine)


async def test_a_lease_ends_although_the_clock_is_set_back(
    store_on: Callable[[Machine], Store],
) -> None:
    """A takeover does not wait for the hour that a clock was set back by; nor does a sleep."""
    machine = Machine()
    async with store_on(machine) as store:
        await begin_runnable(store, "held")
        await begin_runnable(store, "sleeps", runnable_at=machine.now() + timedelta(seconds=TTL))
        assert await claimed_ids(store) == ["held"]
        machine.at -= HOUR
        machine.pass_(TTL / 2)
        assert await claimed_ids(store) == []
        machine.pass_(TTL)
        assert sorted(await claimed_ids(store)) == ["held", "sleeps"]


async def test_a_process_that_starts_on_a_clock_set_back_goes_on(path: Path) -> None:
    """The file says what time it was: the lease of the process before ends in time."""
    machine = Machine()
    async with SqliteStore(path, clock=machine) as store:
        await begin_runnable(store, "r")
        await claimed_ids(store)
    machine = Machine()
    machine.at -= HOUR
    async with SqliteStore(path, clock=machine) as store:
        assert await claimed_ids(store) == []
        machine.pass_(1.1 * TTL)
        assert await claimed_ids(store) == ["r"]


async def test_processes_beside_each_other_agree(path: Path) -> None:
    """One has seen a clock that was an hour ahead for a moment, the other not: what the first leaves
    behind is taken over by the second in time."""
    ahead, behind = Machine(), Machine()
    async with SqliteStore(path, clock=ahead) as one, SqliteStore(path, clock=behind) as other:
        ahead.at += HOUR
        await begin_runnable(one, "r")
        assert await claimed_ids(one) == ["r"]
        behind.pass_(1)
        assert await claimed_ids(other) == []
        behind.pass_(1.1 * TTL)
        assert await claimed_ids(other) == ["r"]


async def test_a_clock_a_year_ahead_holds_nothing_up(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A lease that such a clock gave out has ended when the store is opened at the right time."""
    machine = Machine()
    machine.at += YEAR
    async with SqliteStore(path, clock=machine) as store:
        await begin_runnable(store, "r")
        await claimed_ids(store)
    machine = Machine()
    async with SqliteStore(path, clock=machine) as store:
        assert "behind the last time" in caplog.text
        assert (await store.now()) == machine.now()
        await begin_runnable(store, "new", runnable_at=NOW)
        assert "new" in await claimed_ids(store)
        assert (await store.get("r")).claimed_until == machine.now()


@outlast.workflow
async def naps() -> str:
    await outlast.sleep(1)
    return "awake"


class Turned(SystemClock):
    """The machine's clock, with hands that can be turned."""

    by = timedelta()

    def now(self) -> datetime:
        return super().now() + self.by


@pytest.mark.parametrize("place", ["memory:", "sqlite"])
async def test_a_sleep_lasts_as_long_as_it_says(path: Path, place: str) -> None:
    """The clock is set back by an hour in the middle of it."""
    clock = Turned()
    place = f"sqlite:///{path}" if place == "sqlite" else place
    async with outlast.App(place, workflows=[naps], clock=clock) as app:
        run = await app.start(naps())
        while len(await app.get(run.id).history()) < 2:  # the sleep has not begun
            await clock.sleep(0.01)
        clock.by = -HOUR
        assert await run.result(timeout=20) == "awake"
