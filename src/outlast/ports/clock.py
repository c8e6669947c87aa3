"""Clock: time as an input, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from outlast.model.times import from_micros, to_micros

if TYPE_CHECKING:
    from outlast.ports.store import Store


class Clock(Protocol):
    """Where time comes from. Stores without a server's clock judge leases and timers by it."""

    def now(self) -> datetime:
        """The present, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""
        ...


@runtime_checkable
class LeapingClock(Clock, Protocol):
    """A clock for tests that leaps to the next sleeper when nothing is under way, and so has to
    be told what is: time must not pass while a step or a database is at work."""

    look_again_after: float
    """How long to rely on a wake-up channel before looking all the same. A month of looking every second
    would cost minutes even if no second takes any time."""

    def attempt(self, body: object, *, elsewhere: bool) -> AbstractAsyncContextManager[None]:
        """Around an attempt of a step (`body` says which): on the loop, or elsewhere, in a thread
        or a process."""
        ...

    def watched(self, store: Store) -> Store:
        """The same store, with its calls known to the clock."""
        ...


def look_again_after(clock: Clock, seconds: float) -> float:
    """How long to rely on a wake-up channel: `seconds`, unless the clock has its own idea."""
    own: float = getattr(clock, "look_again_after", seconds)
    return own


class SystemClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SteadyClock(SystemClock):
    """The clock of the machine for a store that has no server: it does not go back when the machine's
    clock is set back, so that timers and leases go on.

    ::

        set forward, or the machine slept   → the present is what the machine says
        set back by up to a day             → time goes on from where it was, 5 % slower, until the
                                              machine's clock has caught up
        set back by more than a day         → the clock was wrong before: back to what it says now

    Slower, and not for ever: a clock that was an hour ahead once must not keep a schedule an hour
    early for good, and a lease that lasts a little longer than its owner believes is safe. Beyond a
    day nothing could be caught up within a reasonable time; no lease is longer than that.

    Other processes may have seen a time that this one has not (`heard`).
    """

    CATCH_UP = 0.95
    MAX_AHEAD = 86_400.0

    def __init__(self, machine: Clock | None = None) -> None:
        self._machine = machine = machine or SystemClock()
        # Of the plain machine without a call in between, and in seconds since 1970: each step asks.
        is_plain = type(machine) is SystemClock
        self._wall = time.time if is_plain else lambda: machine.now().timestamp()
        self.monotonic = time.monotonic if is_plain else machine.monotonic  # type: ignore[method-assign]
        # The present at some moment, and what `monotonic` said then.
        self._last = self._wall(), self.monotonic()

    def now(self) -> datetime:
        wall, passed = self._wall(), self.monotonic()
        before, since = self._last
        steady = before + (passed - since) * self.CATCH_UP
        if wall < steady and steady - wall <= self.MAX_AHEAD:
            return datetime.fromtimestamp(steady, UTC)
        self._last = wall, passed
        return datetime.fromtimestamp(wall, UTC)

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)

    def heard(self, moment: datetime) -> bool:
        """A store has recorded that it was `moment`: it is no earlier now. False if that is so far
        ahead that the clock must have been wrong then."""
        if moment.timestamp() - self._wall() > self.MAX_AHEAD:
            return False
        if self.now() < moment:
            self._last = moment.timestamp(), self.monotonic()
        return True


def steady(clock: Clock | None) -> Clock:
    """The clock of a store that has no server: a clock of tests as it is, the machine's made steady."""
    is_machine = clock is None or isinstance(clock, SystemClock)
    if not is_machine or isinstance(clock, SteadyClock | ServerClock):
        assert clock is not None
        return clock
    return SteadyClock(clock)


class ServerClock(SystemClock):
    """The clock of a database that many machines share: what it last said, and the time that has
    passed here since, which nobody can set. Whatever the clock of the machine says, timers that
    one process sets are due for another when they should be, and leases are judged alike.

    Until it has heard anything, it is the clock of the machine.
    """

    DRIFT = 1e-4
    """How many seconds two clocks may go apart in one."""

    def __init__(self) -> None:
        # Microseconds of the server beyond our own, how far off they may be, since when.
        self._known: tuple[int, float, float] | None = None

    def now(self) -> datetime:
        known = self._known
        if known is None:
            return super().now()
        return from_micros(int(self.monotonic() * 1e6) + known[0])

    def heard(self, moment: datetime, *, asked: float) -> None:
        """The server said that it is `moment`, to a question asked when `monotonic` said that. An
        answer that was long on its way says little; but one that cannot be explained by that says
        that the server's clock was set."""
        answered = self.monotonic()
        error = (answered - asked) / 2
        ahead = to_micros(moment) - int((asked + error) * 1e6)
        known = self._known
        if known is not None:
            doubt = known[1] + (answered - known[2]) * self.DRIFT
            if error > doubt and abs(ahead - known[0]) <= (error + doubt) * 1e6:
                return
        self._known = (ahead, error, answered)


def hear(clock: Clock, until: datetime | None, seconds: float, *, asked: float) -> None:
    """A lease of so many seconds was given `until` then: that tells a server's clock the time."""
    if isinstance(clock, ServerClock) and until is not None:
        clock.heard(until - timedelta(seconds=seconds), asked=asked)
