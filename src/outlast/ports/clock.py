"""Clock: time as an input, so that tests can move it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol, runtime_checkable

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
    """How long to rely on a doorbell before looking all the same. A month of looking every second
    would cost minutes even if no second takes any time."""

    def attempt(self, body: object, *, elsewhere: bool) -> AbstractAsyncContextManager[None]:
        """Around an attempt of a step (`body` says which): on the loop, or elsewhere, in a thread
        or a process."""
        ...

    def watched(self, store: Store) -> Store:
        """The same store, with its calls known to the clock."""
        ...


def look_again_after(clock: Clock, seconds: float) -> float:
    """How long to rely on a doorbell: `seconds`, unless the clock has its own idea."""
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
