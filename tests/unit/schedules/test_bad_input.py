"""What cannot be a schedule is refused where it is written, with the reason."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import outlast
from outlast.errors import InvalidId, InvalidValue, NotFound, WorkflowMisuse
from outlast.stores.memory import MemoryStore


@outlast.workflow
async def report(region: str) -> None:
    return None


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - that is the point
GOOD: dict[str, Any] = {"cron": "0 2 * * *"}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "never": ({"cron": "0 0 30 2 *"}, "day-of-month"),
    "never on a weekday": ({"cron": "0 0 * 2 MON#6"}, "day-of-week"),
    "few fields": ({"cron": "* * *"}, "five fields"),
    "minute": ({"cron": "61 * * * *"}, "minute"),
    "words": ({"cron": "whenever you like, please !"}, "minute"),
    "empty": ({"cron": ""}, "fields"),
    "long": ({"cron": ",".join(["1"] * 5000) + " * * * *"}, "at most 250 characters"),
    "cron of a number": ({"cron": 5}, "must be a string"),
    "before the calendar": ({"starts_at": datetime.min.replace(tzinfo=UTC)}, "Python can"),
    "after the calendar": ({"starts_at": datetime(9999, 12, 31, 23, tzinfo=UTC)}, "never fires"),
    "past its end": (
        {"starts_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-5)))},
        "Python can represent",
    ),
    "zone": ({"timezone": "Mars/Olympus"}, "time zone"),
    "zone as a path": ({"timezone": "../../etc/passwd"}, "time zone"),
    "zone as nothing": ({"timezone": ""}, "time zone"),
    "jitter": ({"jitter": -1}, "jitter"),
    "jitter in days": ({"jitter": timedelta(days=2)}, "jitter"),
    "jitter nan": ({"jitter": math.nan}, "jitter"),
    "neither": ({"cron": None}, "either cron"),
    "both": ({"every": 60}, "either cron"),
    "interval of zero": ({"cron": None, "every": 0}, "got 0"),
    "interval below": ({"cron": None, "every": -5}, "got -5"),
    "interval nan": ({"cron": None, "every": math.nan}, "got nan"),
    "interval for ever": ({"cron": None, "every": math.inf}, "ten years"),
    "interval too fine": ({"cron": None, "every": 0.01}, "1 second"),
    "overlap": ({"overlap": "both"}, "allow, skip, wait, cancel"),
    "catch up": ({"catch_up": "some"}, "none, last, all"),
    "limit": ({"catch_up_limit": 0}, "catch_up_limit"),
    "limit too large": ({"catch_up_limit": 10**6}, "catch_up_limit"),
    "queue": ({"queue": 3}, "QueueOptions"),
    "queue with a slash": ({"queue": "a/b"}, "slash"),
    "queue with a delay": ({"queue": outlast.QueueOptions("a", delay=5)}, "sets the time"),
    "no zone": ({"starts_at": NAIVE}, "with a time zone"),
    "no time left": (
        {"starts_at": datetime(2026, 1, 1, 3, tzinfo=UTC),
         "ends_at": datetime(2026, 1, 1, 4, tzinfo=UTC)},
        "never fires",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_schedule_that_cannot_be(what: str) -> None:
    """Before there is an app, or a store."""
    options, said = BAD[what]
    with pytest.raises(InvalidValue) as refused:
        outlast.Schedule("s", report("eu"), **{**GOOD, **options})
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["", "a@b", "a:b", "x" * 201, "schedule", "a~b", "a\n"])
def test_a_name_that_its_runs_could_not_have(name: str) -> None:
    """It stands in their ids."""
    with pytest.raises(InvalidId):
        outlast.Schedule(name, report("eu"), **GOOD)


def test_something_that_is_no_workflow() -> None:
    """Said with what to do."""
    with pytest.raises(WorkflowMisuse, match=r"(?i)decorate"):
        outlast.Schedule("s", lambda: None, cron="@daily")  # type: ignore[arg-type]


@pytest.mark.parametrize("input", [{}, {"region": "eu", "colour": 1}, {"country": "de"}])
def test_input_that_does_not_fit(input: dict[str, Any]) -> None:
    """The call says it, with the signature."""
    with pytest.raises(TypeError, match=r"report\(region: "):
        outlast.Schedule("s", report(**input), cron="@daily")


async def test_acting_on_what_is_not_there_or_wrong() -> None:
    """A schedule that nobody made, a time without zone, a time that ends before it begins."""
    now = datetime.now(UTC)
    async with outlast.App(MemoryStore(), workflows=[report]) as app:
        with pytest.raises(NotFound, match="schedule 'nope'"):
            await app.client.schedules.pause("nope")
        with pytest.raises(InvalidValue, match="time zone"):
            await app.client.schedules.backfill("s", NAIVE, now)
        with pytest.raises(InvalidValue, match="start < end"):
            await app.client.schedules.backfill("s", now, now)
