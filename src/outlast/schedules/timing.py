"""When a schedule fires: moments computed from its specification alone, so that every process agrees.

An interval counts from `starts_at`, or from 1970, so that "every hour" is on the hour. A cron
expression is read in a time zone, as Debian's cron reads it:

- A job at a fixed time fires once a day also when the clocks change. In spring, a firing in the skipped
  hour happens right after it; in autumn, a firing in the repeated hour happens the first time.
- A job for every hour or every few minutes (a field that begins with ``*``) goes by elapsed time.
- A sixth field, in front, gives the seconds within those minutes.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING

from outlast.errors import InvalidValue

if TYPE_CHECKING:
    from cronsim import CronSim

    from outlast.schedules.schedule import ScheduleSpec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_CRON_LENGTH = 250
SHORTHANDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MINUTE = timedelta(minutes=1)
FIRST_WINDOW = MINUTE
SEARCH_LIMIT = timedelta(days=50 * 366)


def firings(
    spec: ScheduleSpec, after: datetime, until: datetime | None = None
) -> Iterator[datetime]:
    """The moments of all firings, in UTC, in order: later than `after`, up to `until`."""
    if spec.starts_at is not None:
        after = max(after, spec.starts_at - timedelta(microseconds=1))
    end = min((one for one in (until, spec.ends_at) if one is not None), default=None)
    if spec.cron is not None:
        moments = _of_cron(spec.cron, zone_of(spec.timezone), after)
    else:
        moments = _of_interval(timedelta(seconds=spec.every), spec.starts_at or EPOCH, after)
    return moments if end is None else takewhile(lambda moment: moment <= end, moments)


def due(
    spec: ScheduleSpec, after: datetime, now: datetime, most: int
) -> tuple[list[datetime], int]:
    """The last `most` moments after `after` that are due, with their jitter, by `now`; and how many were due
    before them. That count stops early after a long absence."""
    moments, before = _latest(spec, after, now, most)
    # No firing is delayed past the next one, so only the last one may not be due yet.
    if moments and moments[-1] + jitter(spec, moments[-1]) > now:
        return _latest(spec, after, moments[-1] - timedelta(microseconds=1), most)
    return moments, before


def _latest(
    spec: ScheduleSpec, after: datetime, end: datetime, most: int
) -> tuple[list[datetime], int]:
    window = FIRST_WINDOW
    while True:
        start = max(after, end - window)
        last: deque[datetime] = deque(maxlen=most)
        count = 0
        for moment in firings(spec, start, end):
            last.append(moment)
            count += 1
        if count > most or start <= after:
            return list(last), count - len(last)
        window *= 4


def jitter(spec: ScheduleSpec, moment: datetime) -> timedelta:
    """The delay of a firing: deterministic, different for each schedule, and never past the next firing."""
    if not spec.jitter:
        return timedelta()
    most = timedelta(seconds=spec.jitter)
    following = next(firings(spec, moment), None)
    if following is not None:
        most = min(most, following - moment)
    digest = hashlib.sha256(f"{spec.name}@{moment.isoformat()}".encode()).digest()
    return most * (int.from_bytes(digest[:8], "big") / 2**64)


def stamp(moment: datetime) -> str:
    """A moment as it appears in the id of a run: ``20261115T020000Z``."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y%m%dT%H%M%S}{f'.{utc.microsecond:06d}' if utc.microsecond else ''}Z"


def zone_of(name: str) -> tzinfo:
    """The time zone of a name; `InvalidValue` if it is unknown."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # loaded only where schedules are used

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise InvalidValue(
            f"unknown time zone {str(name)[:80]!r}: use a name like Europe/Berlin. If your system has no "
            "time zone data, install the package tzdata"
        ) from None


def check_cron(cron: str) -> str:
    """The expression with shorthands expanded; `InvalidValue` if it is invalid or never fires."""
    from cronsim import CronSim, CronSimError

    given: object = cron
    if not isinstance(given, str):
        raise InvalidValue(f"cron must be a string of five fields (got {given!r})")
    if len(cron) > MAX_CRON_LENGTH:
        raise InvalidValue(
            f"a cron expression has at most {MAX_CRON_LENGTH} characters (got {len(cron)})"
        )
    full = SHORTHANDS.get(cron.strip().lower(), cron)
    try:
        if next(CronSim(full, EPOCH), None) is None:
            raise CronSimError("it never fires")
    except CronSimError as error:
        raise InvalidValue(
            f"invalid cron expression {cron!r}: {str(error).lower()}. Use five fields: minute hour "
            "day-of-month month day-of-week"
        ) from None
    return full


def _of_cron(cron: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    *seconds, minute, hour, day, month, weekday = cron.split()
    minutes = " ".join((minute, hour, day, month, weekday))
    if not seconds:
        yield from _of_minutes(minutes, zone, after)
        return
    from cronsim import CronSim

    chosen = sorted(CronSim(cron, EPOCH).seconds)
    for begin in _of_minutes(minutes, zone, after - MINUTE):
        for second in chosen:
            moment = begin + timedelta(seconds=second)
            if moment > after:
                yield moment


def _of_minutes(cron: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    from cronsim import CronSim

    minute, hour, *_ = cron.split()
    if zone is not UTC and (minute[0] == "*" or hour[0] == "*"):
        yield from _by_time(CronSim(cron, EPOCH), zone, after)
        return
    for local in CronSim(cron, after.astimezone(zone)):
        moment = local.astimezone(UTC)
        if moment > after:  # where clocks change, cronsim repeats moments or goes back
            after = moment
            yield moment


def _by_time(cron: CronSim, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Step through elapsed time minute by minute. cronsim steps by whole hours, and loses a firing where
    clocks change by half an hour."""
    moment = after.replace(second=0, microsecond=0) + MINUTE
    last = after + SEARCH_LIMIT
    while moment < last:
        local = moment.astimezone(zone)
        if local.month not in cron.months or not cron.match_day(local.date()):
            midnight = datetime.combine(local.date() + timedelta(days=1), time(), tzinfo=zone)
            moment = max(midnight.astimezone(UTC), moment + MINUTE)
        elif local.hour not in cron.hours:
            moment += MINUTE * (60 - local.minute)
        else:
            if local.minute in cron.minutes:
                last = moment + SEARCH_LIMIT
                yield moment
            moment += MINUTE


def _of_interval(every: timedelta, start: datetime, after: datetime) -> Iterator[datetime]:
    moment = start + every * max((after - start) // every + 1, 0)
    while True:
        yield moment
        moment += every
