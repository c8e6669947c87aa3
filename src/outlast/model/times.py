"""Time as stores keep it: whole microseconds since 1970, UTC; exact and sortable everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from outlast.errors import InvalidValue

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = EPOCH
"""As a time to become runnable: at once. A store reads any time in the past as its own present."""

_MICROSECOND = timedelta(microseconds=1)


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 of an aware datetime."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """The aware datetime, in UTC, of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)


def moment_after(now: datetime, seconds: float) -> datetime | None:
    """When so many seconds have passed; None for never: not within the years that there are dates for."""
    try:
        return now + timedelta(seconds=max(seconds, 0.0))
    except OverflowError:
        return None


def to_seconds(time: float | timedelta) -> float:
    """A time span in seconds. Whatever else was given is returned as it is, for the caller to refuse."""
    return time.total_seconds() if isinstance(time, timedelta) else time


MAX_DELAY = 100 * 365 * 86_400.0


def check_moment(moment: datetime, what: str) -> datetime:
    """Refuse a time without a zone: nobody could say when it is."""
    if moment.utcoffset() is None:
        raise InvalidValue(f"{what} has no time zone: use an aware datetime, such as now(UTC)")
    return moment


def check_delay(delay: float) -> None:
    """Refuse a delay that no queue can keep: negative, endless, or not a number."""
    kind: object = type(delay)
    if kind not in (int, float) or not 0 <= delay <= MAX_DELAY:
        raise InvalidValue(
            f"a delay of {delay!r} s is not possible: use a number, 0 for now, or more"
        )
