"""Times as stores keep them: whole microseconds since 1970 in UTC, which is exact and sortable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

from outlast.errors import InvalidValue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = EPOCH
"""As `runnable_at`: immediately. A store treats any time in the past as its current time."""

_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The aware datetime, in UTC, of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def moment_after(now: datetime, seconds: float) -> datetime | None:
    """The time after so many seconds; None (never) if `datetime` cannot represent it."""
    try:
        return now + timedelta(seconds=max(seconds, 0.0))
    except OverflowError:
        return None


@overload
def to_seconds(time: float | timedelta) -> float: ...
@overload
def to_seconds(time: float | timedelta | None) -> float | None: ...
def to_seconds(time: float | timedelta | None) -> float | None:
    """A duration in seconds. A value of another type is returned as it is; the caller validates it."""
    return time.total_seconds() if isinstance(time, timedelta) else time


MAX_DELAY = 100 * 365 * 86_400.0
"""In seconds. A longer delay is a mistake, and may exceed the range of `datetime`."""


def check_moment(moment: datetime, what: str) -> datetime:
    """Raise for a time without a time zone."""
    if moment.utcoffset() is None:
        raise InvalidValue(f"{what} has no time zone: use an aware datetime, such as now(UTC)")
    return moment


def check_delay(delay: float) -> None:
    """Raise for a delay that is negative, longer than `MAX_DELAY`, or not a number."""
    kind: object = type(delay)
    if kind not in (int, float) or not 0 <= delay <= MAX_DELAY:
        raise InvalidValue(
            f"a delay of {delay!r} s is not possible: use a number from 0 (now) to {MAX_DELAY:.0f}"
        )
