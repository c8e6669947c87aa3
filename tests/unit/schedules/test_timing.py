"""When a schedule fires: a pure function of its spec, whatever the clocks of the world do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.schedules.schedule import ScheduleSpec
from outlast.schedules.timing import due, firings, jitter, stamp
from tests.unit.schedules.model import fires

# Both changes of 2026 in five time zones: by an hour, by half an hour, at midnight, in the south.
CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),
    "Pacific/Auckland": ("2026-09-27", "2026-04-05"),
}
EXPRESSIONS = [
    "30 2 * * *", "0,30 2 * * *", "0 0 * * *", "15 1-3 * * *", "30 23 * * *", "45 1 * * 0",
    "*/20 * * * *", "10 * * * *", "*/30 2 * * *", "0 */2 * * *",
]  # fmt: skip


def spec(cron: str | None = None, **options: object) -> ScheduleSpec:
    """A spec with this timing."""
    values: dict[str, object] = {"name": "s", "workflow": "w", "input": "{}", **options}
    return ScheduleSpec(cron=cron, **values)  # type: ignore[arg-type]


def utc(text: str) -> datetime:
    """A moment."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("change", ["spring", "autumn"])
@pytest.mark.parametrize("zone", CHANGES)
def test_both_changes_of_the_clock(zone: str, change: str) -> None:
    """From the day before to the day after: each expression fires as the model says."""
    day = utc(CHANGES[zone][change == "autumn"])
    after, until = day - timedelta(hours=26), day + timedelta(hours=26)
    moved = {(after + timedelta(hours=h)).astimezone(ZoneInfo(zone)).utcoffset() for h in range(52)}
    assert len(moved) == 2  # the clocks do change here
    for cron in EXPRESSIONS:
        found = list(firings(spec(cron, timezone=zone), after, until))
        assert found == fires(cron, ZoneInfo(zone), after, until), cron


@pytest.mark.parametrize("change", ["spring", "autumn"])
@pytest.mark.parametrize("zone", CHANGES)
def test_seconds_over_both_changes_of_the_clock(zone: str, change: str) -> None:
    """With six fields the same minutes, each at the seconds that are named."""
    day = utc(CHANGES[zone][change == "autumn"])
    after, until = day - timedelta(hours=26, seconds=17), day + timedelta(hours=26)
    for cron in EXPRESSIONS:
        found = list(firings(spec(f"5,50 {cron}", timezone=zone), after, until))
        minutes = fires(cron, ZoneInfo(zone), after - timedelta(minutes=1), until)
        moments = [one + timedelta(seconds=second) for one in minutes for second in (5, 50)]
        assert found == [one for one in moments if after < one <= until], cron


def test_what_a_person_expects_in_berlin() -> None:
    """Written by hand: 02:30 is left out in spring and fires at 03:00; in autumn it comes twice and
    fires the first time; every hour goes by the time that passes."""
    berlin = spec("30 2 * * *", timezone="Europe/Berlin")
    spring = firings(berlin, utc("2026-03-28"))
    assert [stamp(one) for one in islice(spring, 3)] == [
        "20260328T013000Z", "20260329T010000Z", "20260330T003000Z",
    ]  # fmt: skip
    autumn = firings(berlin, utc("2026-10-24T12:00"))
    assert [stamp(one) for one in islice(autumn, 2)] == ["20261025T003000Z", "20261026T013000Z"]
    within = firings(spec("45 2 * * *", timezone="Europe/Berlin"), utc("2026-10-25T01:30"))
    assert stamp(next(within)) == "20261026T014500Z"  # an hour ago it was a quarter to three
    hourly = firings(spec("0 * * * *", timezone="Europe/Berlin"), utc("2026-10-24T23:30"))
    gaps = [one.hour for one in islice(hourly, 4)]
    assert gaps == [0, 1, 2, 3]


def test_leap_days() -> None:
    """The 29th of February comes every four years, and not in 2100."""
    leap = firings(spec("0 12 29 2 *"), utc("2024-03-01"), utc("2108-01-01"))
    years = [one.year for one in leap]
    assert years == [year for year in range(2028, 2108, 4) if year != 2100]
    daily = firings(spec("0 0 * 2 *"), utc("2028-01-31"), utc("2028-03-05"))
    assert [one.day for one in daily] == list(range(1, 30))


def test_intervals_are_the_same_for_everybody() -> None:
    """Counted from 1970, so an hour is on the hour; or from where the schedule starts."""
    hourly = firings(spec(every=3600.0), utc("2026-11-15T09:12:13"))
    assert [stamp(one) for one in islice(hourly, 2)] == ["20261115T100000Z", "20261115T110000Z"]
    start = utc("2026-11-15T09:10")
    anchored = spec(every=90.0, starts_at=start)
    assert [stamp(one) for one in islice(firings(anchored, utc("2020-01-01")), 2)] == [
        "20261115T091000Z", "20261115T091130Z",
    ]  # fmt: skip
    assert next(firings(anchored, start)) == start + timedelta(seconds=90)


def test_a_schedule_ends() -> None:
    """Up to its end, that moment included."""
    short = spec(every=60.0, starts_at=utc("2026-01-01"), ends_at=utc("2026-01-01T00:02"))
    assert len(list(firings(short, utc("2025-01-01")))) == 3


moments = st.integers(0, 365 * 86_400).map(
    lambda seconds: utc("2026-01-01") + timedelta(seconds=seconds)
)
crons = st.tuples(
    st.sampled_from(["0", "30", "5,35", "*/15", "59"]),
    st.sampled_from(["*", "0", "1-3", "2", "*/6", "23"]),
    st.sampled_from(["*", "1", "29", "31"]),
    st.sampled_from(["*", "3", "4-10/2", "10,11"]),
    st.sampled_from(["*", "0", "1-5", "7"]),
).map(" ".join)


@given(cron=crons, zone=st.sampled_from(sorted(CHANGES)), after=moments, hours=st.integers(1, 40))
@settings(max_examples=40, deadline=None)
def test_cron_fires_as_the_model_says(cron: str, zone: str, after: datetime, hours: int) -> None:
    """Any expression, zone and time; and it does not matter where one begins to count."""
    until = after + timedelta(hours=hours)
    chosen = spec(cron, timezone=zone)
    found = list(firings(chosen, after, until))
    assert found == fires(cron, ZoneInfo(zone), after, until)
    middle = after + timedelta(hours=hours) / 3
    assert found == [*firings(chosen, after, middle), *firings(chosen, middle, until)]


@given(
    every=st.integers(1, 5000),
    seconds=st.integers(0, 20_000),
    most=st.integers(1, 20),
    shake=st.floats(0, 10_000),
)
@settings(max_examples=100, deadline=None)
def test_what_has_come_is_the_end_of_all_that_was_due(
    every: int, seconds: int, most: int, shake: float
) -> None:
    """However long nobody looked: the last of them, with their jitter, and that there were more."""
    after = utc("2026-05-05T05:05:05")
    now = after + timedelta(seconds=seconds)
    chosen = spec(every=float(every), jitter=shake)
    come = []
    for moment in firings(chosen, after, now):
        if moment + jitter(chosen, moment) > now:
            break
        come.append(moment)
    found, before = due(chosen, after, now, most)
    assert found == come[-most:]
    assert (before > 0) == (len(come) > most)
    assert before <= max(len(come) - most, 0)


def test_a_long_absence_costs_little() -> None:
    """A schedule of every second that nobody looked at for a year: not counted one by one."""
    every_second = spec(every=1.0)
    found, before = due(every_second, utc("2025-01-01"), utc("2026-01-01"), 3)
    assert [stamp(one) for one in found] == [
        "20251231T235958Z", "20251231T235959Z", "20260101T000000Z",
    ]  # fmt: skip
    assert 0 < before < 1000


def test_jitter_is_chance_that_everybody_agrees_on() -> None:
    """Between nothing and all of it, and another one for each firing and each schedule."""
    shaky = spec("0 * * * *", jitter=600.0)
    shifts = [jitter(shaky, one) for one in islice(firings(shaky, utc("2026-01-01")), 200)]
    assert all(timedelta() <= shift < timedelta(seconds=600) for shift in shifts)
    assert len(set(shifts)) == 200
    other = spec("0 * * * *", jitter=600.0, name="t")
    moment = utc("2026-01-01T01:00")
    assert jitter(other, moment) != jitter(shaky, moment)
    assert jitter(shaky, moment) == jitter(shaky, moment)
