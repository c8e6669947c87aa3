"""Retry: when a failed attempt is worth another one, and after how long. Pure decisions."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from outlast.errors import InvalidValue, PayloadError
from outlast.model.validation import MAX_DELAY

HOUR = 3600.0


@dataclass(frozen=True)
class Retry:
    """How often and how read_with_retry a step is tried.

    The n-th retry waits ``delay * backoff ** (n - 1)`` seconds, at most `max_delay` (an hour, or
    `delay` if that is longer), and up to `jitter` (a share of it) more or less, so that many
    failures do not come back at once.
    `give_up_on` wins over `retry_on`. A value that cannot be stored is never worth a retry.
    """

    attempts: int = 3
    delay: float = 1.0
    backoff: float = 2.0
    max_delay: float | None = None
    jitter: float = 0.1
    retry_on: tuple[type[Exception], ...] = (Exception,)
    give_up_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        attempts: object = self.attempts
        if not isinstance(attempts, int) or attempts < 1:
            raise InvalidValue(
                f"attempts={self.attempts!r}: a step needs at least one attempt, and a whole number"
            )
        for name in ("delay", "backoff", "max_delay", "jitter"):
            value = getattr(self, name)
            if not is_number(value) and (name, value) != ("max_delay", None):
                raise InvalidValue(f"{name}={value!r}: a retry needs a number here")
        for name in ("retry_on", "give_up_on"):
            kinds = getattr(self, name)
            if not isinstance(kinds, tuple) or not all(_is_kind(kind) for kind in kinds):
                raise InvalidValue(
                    f"{name}={kinds!r}: use a tuple of classes of errors, as (ConnectionError,)"
                )
        if self.delay < 0 or self.backoff < 1 or self._most < 0 or not 0 <= self.jitter <= 1:
            raise InvalidValue(
                "a retry needs delay ≥ 0, backoff ≥ 1, max_delay ≥ 0 and jitter between 0 and 1"
            )
        if self.delay > MAX_DELAY or self.backoff == math.inf:
            raise InvalidValue(
                f"a retry with delay={self.delay!r} and backoff={self.backoff!r} would never come: use at "
                "most 100 years, and attempts=1 for none"
            )

    @property
    def _most(self) -> float:
        return max(HOUR, self.delay) if self.max_delay is None else min(self.max_delay, MAX_DELAY)

    def wait(self, failures: int, error: BaseException) -> timedelta | None:
        """How long to wait after the `failures`-th failure, or None to give up."""
        if failures >= self.attempts or _is(error, (*self.give_up_on, PayloadError)):
            return None
        if not _is(error, self.retry_on):
            return None
        try:
            seconds = min(self.delay * self.backoff ** (failures - 1), self._most)
        except OverflowError:
            seconds = self._most if self.delay else 0.0
        seconds *= 1 + random.uniform(-self.jitter, self.jitter)
        return timedelta(seconds=seconds)


def is_number(value: object) -> bool:
    """Whether it is a number that can be calculated with."""
    return isinstance(value, int | float) and not math.isnan(value)


def _is_kind(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _is(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error is of one of these kinds; one from another process has only their names."""
    elsewhere = getattr(error, "kinds", ())
    return isinstance(error, kinds) or any(name_of(kind) in elsewhere for kind in kinds)


def name_of(kind: type) -> str:
    """The full name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


ONCE = Retry(attempts=1)
"""The policy of a step that declares none: an error is the outcome."""

MAX_INTERRUPTIONS = 3
"""How often a step may be cut off by the end of its process before it counts as the cause."""

MAX_SHARED = 10
"""The same for one that was never alone when its process ended: every death together with others
makes the next group smaller, so that this is a bound and not the rule."""

MAX_LOST = 10
"""How often its process may lose its lease and live before that counts, too: a step that holds the
interpreter for longer than a lease would be tried for ever."""

SUSPECT_AFTER = 2
"""How often it may be cut off before it has to begin in a small group, so that it takes few others along."""
