"""When a schedule fires: moments computed from its plan alone, the same for whoever asks.

An interval counts from `starts_at`, or from 1970, so that "every hour" is on the hour. A cron
expression is read in a time zone, as Debian's cron reads it:

- A job at a fixed time fires once a day also when the clocks change. In spring, what falls into the
  hour that is left out fires right after it; in autumn, what falls into the hour that comes twice
  fires the first time.
- A job for every hour or every few minutes (a field that begins with ``*``) goes by the time that
  passes.
- A sixth field, in front, says at which seconds of those minutes.
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

    from outlast.schedules.schedule import Plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_CRON_CHARACTERS = 250
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
GIVE_UP = timedelta(days=50 * 366)


def firings(plan: Plan, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
    """The moments at which a plan fires, in UTC, in order: later than `after`, up to `until`."""
    if plan.starts_at is not None:
        after = max(after, plan.starts_at - timedelta(microseconds=1))
    end = min((one for one in (until, plan.ends_at) if one is not None), default=None)
    if plan.cron is not None:
        moments = _of_cron(plan.cron, zone_of(plan.timezone), after)
    else:
        moments = _of_interval(timedelta(seconds=plan.every), plan.starts_at or EPOCH, after)
    return moments if end is None else takewhile(lambda moment: moment <= end, moments)


def due(plan: Plan, after: datetime, now: datetime, most: int) -> tuple[list[datetime], int]:
    """The last `most` moments after `after` that have come, with their jitter, by `now`; and how
    many came before them, or more: a long absence is not counted to its beginning."""
    moments, before = _latest(plan, after, now, most)
    # Nothing is put off past the next one, so only the last one can be.
    if moments and moments[-1] + jitter(plan, moments[-1]) > now:
        return _latest(plan, after, moments[-1] - timedelta(microseconds=1), most)
    return moments, before


def _latest(plan: Plan, after: datetime, end: datetime, most: int) -> tuple[list[datetime], int]:
    window = FIRST_WINDOW
    while True:
        start = max(after, end - window)
        last: deque[datetime] = deque(maxlen=most)
        count = 0
        for moment in firings(plan, start, end):
            last.append(moment)
            count += 1
        if count > most or start <= after:
            return list(last), count - len(last)
        window *= 4


def jitter(plan: Plan, moment: datetime) -> timedelta:
    """By how much a firing is put off: the same whoever asks, different from others', and never past
    the next one."""
    if not plan.jitter:
        return timedelta()
    most = timedelta(seconds=plan.jitter)
    following = next(firings(plan, moment), None)
    if following is not None:
        most = min(most, following - moment)
    digest = hashlib.sha256(f"{plan.name}@{moment.isoformat()}".encode()).digest()
    return most * (int.from_bytes(digest[:8], "big") / 2**64)


def stamp(moment: datetime) -> str:
    """A moment as it stands in a run's id: ``20261115T020000Z``."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y%m%dT%H%M%S}{f'.{utc.microsecond:06d}' if utc.microsecond else ''}Z"


def zone_of(name: str) -> tzinfo:
    """The time zone of that name; `InvalidValue` if there is none."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # not for those who have no schedules

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        raise InvalidValue(
            f"there is no time zone {str(name)[:80]!r} here: use a name like Europe/Berlin, or "
            "install the package tzdata if your system has none"
        ) from None


def check_cron(cron: str) -> str:
    """The expression in full; `InvalidValue` if it is none or never fires."""
    from cronsim import CronSim, CronSimError

    given: object = cron
    if not isinstance(given, str):
        raise InvalidValue(f"cron={given!r} is not possible: give five fields in a string")
    if len(cron) > MOST_CRON_CHARACTERS:
        raise InvalidValue(f"a cron expression of {len(cron)} characters: use shorter lists")
    full = SHORTHANDS.get(cron.strip().lower(), cron)
    try:
        if next(CronSim(full, EPOCH), None) is None:
            raise CronSimError("it never fires")
    except CronSimError as error:
        raise InvalidValue(
            f"cron {cron!r} is not possible: {str(error).lower()}. Use five fields (minute hour "
            "day-of-month month day-of-week) for times that exist"
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
        if moment > after:  # where clocks change, one may come twice, or from before
            after = moment
            yield moment


def _by_time(cron: CronSim, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The same, minute by minute of the time that passes. cronsim goes on by whole hours of it, and
    so loses a firing where clocks change by half an hour."""
    moment = after.replace(second=0, microsecond=0) + MINUTE
    last = after + GIVE_UP
    while moment < last:
        local = moment.astimezone(zone)
        if local.month not in cron.months or not cron.match_day(local.date()):
            midnight = datetime.combine(local.date() + timedelta(days=1), time(), tzinfo=zone)
            moment = max(midnight.astimezone(UTC), moment + MINUTE)
        elif local.hour not in cron.hours:
            moment += MINUTE * (60 - local.minute)
        else:
            if local.minute in cron.minutes:
                last = moment + GIVE_UP
                yield moment
            moment += MINUTE


def _of_interval(every: timedelta, start: datetime, after: datetime) -> Iterator[datetime]:
    moment = start + every * max((after - start) // every + 1, 0)
    while True:
        yield moment
        moment += every
