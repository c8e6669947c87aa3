"""Clock: time as an input, so that tests can move it. Backoff: how long to wait before the next try.

The pauses of a `Backoff` grow by a factor up to a longest one. It counts the tries of one call and is not shared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from outlast.errors import TryAgain
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
    """A clock for tests that jumps to the next sleeper when nothing is in flight. It is notified of steps
    and store calls: time must not pass while one runs."""

    look_again_after: float
    """How long to rely on wake-ups between two polls. A virtual month with a poll every second would take
    minutes."""

    def attempt(self, body: object, *, elsewhere: bool) -> AbstractAsyncContextManager[None]:
        """Around an attempt of a step (`body` says which): on the loop, or elsewhere, in a thread
        or a process."""
        ...

    def watched(self, store: Store) -> Store:
        """The same store, with its calls known to the clock."""
        ...


def look_again_after(clock: Clock, seconds: float) -> float:
    """How long to rely on wake-ups between two polls: `seconds`, unless the clock sets it."""
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
    """The clock of the machine for a store without a server. It does not go back when the machine's clock
    is set back, so that timers and leases continue.

    ::

        set forward, or the machine slept   → the present is what the machine says
        set back by up to a day             → time continues from where it was, 5 % slower, until the
                                              machine's clock has caught up
        set back by more than a day         → the clock was wrong before: back to what it says now

    It runs slower, so that a clock that was an hour ahead once does not keep schedules early for ever; a
    lease that lasts a little longer than its owner believes is safe. More than a day cannot be caught up
    in a reasonable time, and no lease is longer.

    Other processes may have recorded a later time (`heard`).
    """

    CATCH_UP = 0.95
    MAX_AHEAD = 86_400.0

    def __init__(self, machine: Clock | None = None) -> None:
        self._machine = machine = machine or SystemClock()
        # For a plain machine clock without a call in between: every step reads it.
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
        """A store has recorded the time `moment`: it is not earlier now. False if that is so far ahead
        that the clock must have been wrong then."""
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
    """The clock of a database server: its last known time, plus the monotonic time that has passed here
    since. Processes on machines with different clocks agree on timers and leases.

    Until the server's time is known, it is the clock of the machine.
    """

    DRIFT = 1e-4
    """Seconds by which two clocks may drift apart in one second."""

    def __init__(self) -> None:
        # Offset of the server in microseconds, its error in seconds, and when it was measured.
        self._known: tuple[int, float, float] | None = None

    def now(self) -> datetime:
        known = self._known
        if known is None:
            return super().now()
        return from_micros(int(self.monotonic() * 1e6) + known[0])

    def heard(self, moment: datetime, *, asked: float) -> None:
        """The server's time was `moment`, in a response to a request sent at `asked` on `monotonic`. A
        slow response is ignored, unless the difference is larger than its error: then the server's clock
        was set."""
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
    """Learn the server's time from a lease of `seconds` that ends at `until`."""
    if isinstance(clock, ServerClock) and until is not None:
        clock.heard(until - timedelta(seconds=seconds), asked=asked)


READ_TRIES = 4
TIMEOUT_FACTOR = 4
"""Each further try may take this many times longer: a long history needs more time than one call gets."""

log = logging.getLogger("outlast.engine")
T = TypeVar("T")


class Backoff:
    """The pauses between the tries of one call: `first_s`, then `factor` times longer each, up to `longest_s`."""

    __slots__ = ("_factor", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float, *, factor: float = 2.0) -> None:
        self._next_s = first_s
        self._longest_s = longest_s
        self._factor = factor

    def next_s(self) -> float:
        """The seconds to wait before the next try."""
        pause_s = min(self._next_s, self._longest_s)
        self._next_s = pause_s * self._factor
        return pause_s

    async def wait(self, clock: Clock) -> None:
        """Sleep on `clock` until the next try."""
        await clock.sleep(self.next_s())


async def read_with_retry(
    clock: Clock,
    read: Callable[[float], Awaitable[T]],
    timeout_s: float,
    *,
    tries: int | None = READ_TRIES,
) -> T:
    """Call `read` with a timeout in seconds, and again if the store fails. The owner of a claim reads this
    way: giving up would cut off the steps of its run, and a read without a timeout could wait for ever on a
    dead connection while the lease is renewed on another. With `tries=None` there is no limit but the
    cancellation of the caller."""
    backoff, failed = Backoff(0.1, 2.5, factor=5), 0
    longest_s = timeout_s * TIMEOUT_FACTOR ** (READ_TRIES - 1)
    while True:
        try:
            return await read(timeout_s)
        except (TryAgain, OSError) as error:
            failed += 1
            if failed == tries:
                raise
            log.warning("reading failed, trying again: %s", error)
            await backoff.wait(clock)
            timeout_s = min(timeout_s * TIMEOUT_FACTOR, longest_s)
