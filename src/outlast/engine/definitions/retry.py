"""Retry: whether a failed attempt is retried, and after how long. Pure decisions.

A *bug* is an error that the same code raises again: it is not retried, unless the policy names its class.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from datetime import timedelta

from outlast._public import public
from outlast.errors import InvalidValue, PayloadError, WorkflowMisuse
from outlast.model.times import MAX_DELAY, to_seconds

HOUR = 3600.0

PROGRAMMING_ERRORS: tuple[type[Exception], ...] = (
    NameError,
    UnboundLocalError,
    AttributeError,
    TypeError,
    LookupError,
    KeyError,
    IndexError,
    AssertionError,
    ImportError,
    ModuleNotFoundError,
)
"""The classes of bugs. A class that is derived from one of them has a meaning of its own and is none."""


@public
class RetryAfter(Exception):
    """Raise it in a step to say when it may be tried again, as a service does by ``Retry-After``::

        raise outlast.RetryAfter(float(response.headers["Retry-After"])) from error

    It counts as a failed attempt, and `Retry.attempts` of the step limits how many there are."""

    def __init__(self, seconds: float | timedelta) -> None:
        wait = to_seconds(seconds)
        if not is_number(wait) or not 0 <= wait <= MAX_DELAY:
            raise InvalidValue(f"RetryAfter({seconds!r}): use a number of seconds, or a timedelta")
        super().__init__(
            f"to be tried again after {wait:g} s (step(retry=outlast.Retry(attempts=…)) says how often)"
        )
        self.seconds = wait


@public
@dataclass(frozen=True)
class Retry:
    """How many attempts a step gets, and how far apart they are.

    The n-th retry waits ``delay * backoff ** (n - 1)`` seconds, at most `max_delay` (an hour, or `delay` if that is
    longer), plus or minus up to `jitter` (a share of it), so that many failures are not retried at the same moment.

    Every `Exception` is retried except bugs: NameError, AttributeError, TypeError, LookupError, KeyError, IndexError,
    AssertionError and ImportError themselves (not classes derived from them), and `WorkflowMisuse`. `on` names the
    classes that are retried instead, bugs included if it names them: ``on=(Exception,)`` retries all. `give_up_on` wins
    over `on`. A value that cannot be stored is never retried. `RetryAfter` says its own delay.
    """

    attempts: int = 3
    delay: float | timedelta = 1.0
    backoff: float = 2.0
    max_delay: float | timedelta | None = None
    jitter: float = 0.1
    on: tuple[type[Exception], ...] | None = None
    give_up_on: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        for name in ("delay", "max_delay"):
            object.__setattr__(self, name, to_seconds(getattr(self, name)))
        attempts: object = self.attempts
        if not isinstance(attempts, int) or attempts < 1:
            raise InvalidValue(f"attempts={self.attempts!r}: use a whole number of at least 1")
        for name in ("delay", "backoff", "max_delay", "jitter"):
            value = getattr(self, name)
            if not is_number(value) and (name, value) != ("max_delay", None):
                raise InvalidValue(f"{name}={value!r}: use a number")
        for name in ("on", "give_up_on"):
            kinds = getattr(self, name)
            if (name, kinds) == ("on", None):
                continue
            if not isinstance(kinds, tuple) or not all(_is_kind(kind) for kind in kinds):
                raise InvalidValue(
                    f"{name}={kinds!r}: use a tuple of classes of errors, as (ConnectionError,)"
                )
        if self._delay < 0 or self.backoff < 1 or self._most < 0 or not 0 <= self.jitter <= 1:
            raise InvalidValue(
                "a retry needs delay ≥ 0, backoff ≥ 1, max_delay ≥ 0 and jitter between 0 and 1"
            )
        if self._delay > MAX_DELAY or self.backoff == math.inf:
            raise InvalidValue(
                f"a retry with delay={self.delay!r} and backoff={self.backoff!r} would never happen: use at "
                "most 100 years, or attempts=1 for no retry"
            )

    @property
    def _most(self) -> float:
        if self.max_delay is None:
            return max(HOUR, self._delay)
        return min(to_seconds(self.max_delay), MAX_DELAY)

    @property
    def _delay(self) -> float:
        return to_seconds(self.delay)

    def wait(self, failures: int, error: BaseException) -> timedelta | None:
        """How long to wait after the `failures`-th failure, or None to give up."""
        if failures >= self.attempts or _is(error, (*self.give_up_on, PayloadError)):
            return None
        if _is(error, (RetryAfter,)):
            state = getattr(error, "raised_state", vars(error))  # of an error from another process
            return timedelta(seconds=state.get("seconds", self._delay))
        if is_bug(error) if self.on is None else not _is(error, self.on):
            return None
        try:
            seconds = min(self._delay * self.backoff ** (failures - 1), self._most)
        except OverflowError:
            seconds = self._most if self._delay else 0.0
        seconds *= 1 + random.uniform(-self.jitter, self.jitter)
        return timedelta(seconds=seconds)


def is_number(value: object) -> bool:
    """Whether it is an int or a float, and not NaN."""
    return isinstance(value, int | float) and not math.isnan(value)


def _is_kind(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _is(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether an error is of one of these classes; an error from another process has only their names."""
    elsewhere = getattr(error, "kinds", ())
    return isinstance(error, kinds) or any(name_of(kind) in elsewhere for kind in kinds)


def is_bug(
    error: BaseException, kinds: tuple[type[BaseException], ...] = PROGRAMMING_ERRORS
) -> bool:
    """Whether an error is a bug: its class is one of `kinds` itself, or it is a misuse of outlast."""
    elsewhere = getattr(error, "kinds", ())  # of an error from another process
    if elsewhere:
        return elsewhere[0] in map(name_of, kinds) or name_of(WorkflowMisuse) in elsewhere
    return type(error) in kinds or isinstance(error, WorkflowMisuse)


def check_park_on(kinds: object) -> None:
    """Raise for what is no tuple of classes of exceptions."""
    if kinds is not None and not (
        isinstance(kinds, tuple)
        and all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds)
    ):
        raise InvalidValue(
            f"park_on={kinds!r}: use a tuple of classes of exceptions, as (KeyError, TypeError), or () for none"
        )


def name_of(kind: type) -> str:
    """The full name of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


ONCE = Retry(attempts=1)
"""The policy of a step that declares none: no retry."""

MAX_INTERRUPTIONS = 3
"""How many crashes of its process interrupt a step before it counts as the cause."""

MAX_SHARED = 10
"""The same for a step that never ran alone: each crash makes its next group smaller, so this is rarely reached."""

MAX_LOST = 10
"""How often its process may lose its lease and live before that counts, too: a step that holds the interpreter lock for
longer than a lease would be retried for ever."""

SUSPECT_AFTER = 2
"""After how many interruptions a step has to start in a small group, so that a crash interrupts few others."""
