"""ManualClock: time that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import threading
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """A clock for tests. `advance` moves it and wakes the sleepers whose time has come.

    `set` moves only the wall clock, as an administrator or a faulty clock would; `monotonic` and
    the sleepers are not affected. The clock is thread-safe.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        # Whole microseconds, so that ten steps of 0.1 s are one second.
        self._passed = 0
        self._lock = threading.Lock()
        self._order = count()
        self._sleepers: list[_Sleeper] = []

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._passed / 1_000_000

    @property
    def sleepers(self) -> int:
        """How many coroutines sleep on this clock."""
        return sum(not future.done() for _, _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        awake: asyncio.Future[None] = loop.create_future()
        with self._lock:
            wake_at = self._passed + max(_micros(seconds), 1)  # 0 would never be due
            heapq.heappush(self._sleepers, (wake_at, next(self._order), loop, awake))
        await awake

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. Sleepers are woken in the order of their times."""
        if seconds < 0:
            raise ValueError("seconds must not be negative: use set() to turn the wall clock back")
        with self._lock:
            self._now += timedelta(microseconds=_micros(seconds))
            self._passed += _micros(seconds)
            due = []
            while self._sleepers and self._sleepers[0][0] <= self._passed:
                due.append(heapq.heappop(self._sleepers))
        for _, _, loop, awake in due:
            if not loop.is_closed():
                loop.call_soon_threadsafe(wake, awake)

    def set(self, moment: datetime) -> None:
        """Turn the wall clock, forwards or back; no time passes."""
        self._now = moment


_Sleeper = tuple[int, int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def wake(future: asyncio.Future[None]) -> None:
    """Wake the coroutine that awaits the future, unless it is done or cancelled."""
    if not future.done():
        future.set_result(None)
