"""When cron fires, said in another way: every minute there is, asked one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def fires(cron: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """The firings later than `after`, up to `until`, in UTC."""
    fields = cron.split()
    goes_by_time = fields[0].startswith("*") or fields[1].startswith("*")
    found: set[datetime] = set()
    if goes_by_time:
        moment = after.replace(second=0, microsecond=0)
        while moment <= until:
            if _matches(fields, moment.astimezone(zone)):
                found.add(moment)
            moment += MINUTE
    else:
        wall = after.astimezone(zone).replace(tzinfo=None, second=0, microsecond=0)
        wall -= timedelta(days=1)
        while wall <= until.astimezone(zone).replace(tzinfo=None) + timedelta(days=1):
            if _matches(fields, wall):
                found.add(_first_that_exists(wall, zone))
            wall += MINUTE
    return sorted(moment for moment in found if after < moment <= until)


def _first_that_exists(wall: datetime, zone: ZoneInfo) -> datetime:
    while True:
        moment = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) == wall:
            return moment
        wall += MINUTE


def _matches(fields: list[str], local: datetime) -> bool:
    if local.minute not in _values(fields[0], *RANGES[0]):
        return False
    if local.hour not in _values(fields[1], *RANGES[1]):
        return False
    if local.month not in _values(fields[3], *RANGES[3]):
        return False
    day = local.day in _values(fields[2], *RANGES[2])
    weekday = {number % 7 for number in _values(fields[4], *RANGES[4])}
    on_weekday = local.isoweekday() % 7 in weekday
    both = fields[2].startswith("*") or fields[4].startswith("*")
    return (day and on_weekday) if both else (day or on_weekday)


@cache
def _values(field: str, low: int, high: int) -> set[int]:
    values: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (int(first), int(last or first))
        values.update(range(begin, end + 1, int(step or 1)))
    return values
