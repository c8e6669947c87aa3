"""QueueOptions: in which queue a run waits before it starts, and until when."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from outlast.errors import InvalidValue
from outlast.model.queue_policy import check_key, check_queue
from outlast.model.validation import check_delay, check_moment

STARTS = "starts"
"""The queue of runs that only wait for a time."""


class QueueOptions(Struct, frozen=True, omit_defaults=True):
    """How a run waits in a named queue. The queue's policy decides when the run starts; from then on it
    is in flight until it ends.

    Runs with the same `key` form a line, and lines take turns; the smallest `priority` of a line is
    first. With `delay` (seconds) or `at` it does not start before that time.
    """

    queue: str = STARTS
    key: str = ""
    priority: int = 0
    at: datetime | None = None
    delay: float | timedelta = 0.0

    def resolved(self, now: datetime) -> QueueOptions:
        """The same options, checked, with a time instead of a delay."""
        check_queue(self.queue)
        check_key(self.key)
        if type(self.priority) is not int or abs(self.priority) >= 2**31:
            raise InvalidValue(
                f"priority={self.priority!r} is not possible: use a whole number of 32 bits, the "
                "smallest goes first"
            )
        delay: object = self.delay
        if type(delay) not in (int, float, timedelta):
            raise InvalidValue(f"delay={delay!r} is not possible: give seconds or a timedelta")
        begins: object = self.at
        if begins is not None and not isinstance(begins, datetime):
            raise InvalidValue(f"at={begins!r} is not possible: give a datetime with a time zone")
        seconds = self.delay.total_seconds() if isinstance(self.delay, timedelta) else self.delay
        check_delay(seconds)
        at = self.at
        if at is not None:
            check_moment(at, "the time at which a run begins")
            if seconds:
                raise InvalidValue("a run has `at` and `delay`: give one of them")
        elif seconds:
            at = now + timedelta(seconds=seconds)
        return QueueOptions(self.queue, self.key, self.priority, at)
