"""The clock of a database that many machines share, as one of them knows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from outlast.ports.clock import ServerClock

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


class Machine(ServerClock):
    """One whose own clock may say anything."""

    since = 1000.0

    def monotonic(self) -> float:
        return self.since


@pytest.fixture
def clock() -> Machine:
    clock = Machine()
    clock.heard(NOON, asked=clock.since)
    return clock


def test_until_it_has_heard_anything_it_is_the_clock_of_the_machine() -> None:
    """There is no other."""
    before = datetime.now(UTC)
    assert before <= ServerClock().now() <= datetime.now(UTC)


@pytest.mark.proves("I29")
def test_it_is_the_time_that_the_server_said_and_what_has_passed_since(clock: Machine) -> None:
    """However the clock of the machine is set: only the monotonic one is looked at."""
    assert clock.now() == NOON
    clock.since += 60
    assert clock.now() == NOON + timedelta(seconds=60)


def test_an_answer_that_was_long_on_its_way_says_less_than_one_that_was_not(clock: Machine) -> None:
    """It may be off by half of the time that it took."""
    clock.since += 10
    clock.heard(NOON + timedelta(seconds=6), asked=clock.since - 8)
    assert clock.now() == NOON + timedelta(seconds=10)


def test_an_answer_that_took_no_time_sets_it_right(clock: Machine) -> None:
    """Two clocks never go exactly alike."""
    clock.since += 100
    clock.heard(NOON + timedelta(seconds=100.005), asked=clock.since)
    assert clock.now() == NOON + timedelta(seconds=100.005)


def test_a_server_whose_clock_was_set_is_believed(clock: Machine) -> None:
    """No delay explains an hour."""
    clock.since += 10
    clock.heard(NOON - timedelta(hours=1), asked=clock.since - 2)
    assert clock.now() == NOON - timedelta(hours=1) + timedelta(seconds=1)
