"""VirtualClock: a clock that jumps to the next sleeper when nothing is in flight. ManualClock, its base, stands
still until a test advances it.

::

    async with outlast.testing.app(checkout) as app:      # its clock is one of these
        run = await app.start(checkout(order))
        await run.result()                                # thirty days, in milliseconds

Idle means: no callback is ready on the event loop, and no store call and no step function is in
flight. A coroutine that sleeps on the clock itself, in a step or in a slow store, does not hold the
clock.

======================= ==================================================================
in flight               holds the clock
======================= ==================================================================
a store call            until it returns
a step in a thread or a until it returns, for at most `patience` seconds of real time, so that
process                 a step that hangs runs into its timeout
an async step           the same, if the loop has an open socket or pipe; otherwise for
                        `grace` seconds of real time before each jump, because what it
                        awaits may never happen
======================= ==================================================================

On the memory store with steps that do not wait, no real time passes and the order of events is
deterministic.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from outlast.errors import WorkflowMisuse
from outlast.ports.clock import Clock
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.testkit.wrapped_store import WrappedQueue, WrappedStore

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


T = TypeVar("T")

GRACE = 0.02
PATIENCE = 10.0
# asyncio's own loops show whether a callback is ready. Other loops count as idle after so many quiet
# rounds.
ROUNDS, BLIND_ROUNDS = 2, 100
LONGEST_PAUSE = 0.1


class Work:
    """A store call or step function in flight."""

    __slots__ = ("elsewhere", "patience", "sleeping", "started_at")

    def __init__(self, *, elsewhere: bool, patience: float) -> None:
        self.started_at = time.monotonic()
        self.elsewhere = elsewhere
        self.patience = patience
        self.sleeping = 0


_work: ContextVar[tuple[Work, ...]] = ContextVar("outlast_virtual_work", default=())


_clock: ContextVar[Clock] = ContextVar("outlast_virtual_clock")


async def sleep(seconds: float) -> None:
    """Sleep in a step under test, on the virtual clock of its app."""
    try:
        clock = _clock.get()
    except LookupError:
        raise WorkflowMisuse("outlast.testing.sleep() works in a step on a virtual clock") from None
    await clock.sleep(seconds)


@contextmanager
def clock_of_step(clock: Clock) -> Iterator[None]:
    """Set the clock that `sleep` uses in a step function."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        with suppress(ValueError):
            _clock.reset(token)


class VirtualClock(ManualClock):
    """A clock that jumps when nothing is in flight, for the one event loop of a test.

    `look_again_after` is how long engines and clients on this clock trust their wake-up channel. In one
    process it never fails; with two stores on one file, which cannot send a wake-up for each other, say
    ``look_again_after=1``.
    """

    def __init__(
        self,
        start: datetime = START,
        *,
        grace: float = GRACE,
        patience: float = PATIENCE,
        look_again_after: float = math.inf,
    ) -> None:
        super().__init__(start)
        self.look_again_after = look_again_after
        self.jumps = 0
        self._grace = grace
        self.patience = patience
        self._in_flight: set[Work] = set()
        self._holds = 0
        self._settling: list[asyncio.Future[None]] = []
        self._watch: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quiet_rounds = 0
        self._quiet_since: float | None = None

    # -- waiting ------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        works = _work.get()
        for work in works:
            work.sleeping += 1
        try:
            if seconds == math.inf:
                await asyncio.get_running_loop().create_future()
            else:
                self._schedule_check()
                await super().sleep(seconds)
        finally:
            for work in works:
                work.sleeping -= 1

    async def settle(self) -> None:
        """Return when nothing more can happen at the current time. No time passes."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self._schedule_check()
        await settled

    def jump(self) -> bool:
        """Jump to the next sleeper now, whatever is in flight; False if there is none."""
        next_at = self._next()
        if next_at is None:
            return False
        self.jumps += 1
        self.advance((next_at - self._passed) / 1_000_000)
        return True

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Prevent jumps in this block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._schedule_check()

    # -- what is in flight --------------------------------------------------------------------

    @contextmanager
    def working(self, *, elsewhere: bool = True, patience: float = math.inf) -> Iterator[Work]:
        """Hold the clock in this block, for at most `patience` seconds of real time."""
        work = Work(elsewhere=elsewhere, patience=patience)
        token = _work.set((*_work.get(), work))
        self._in_flight.add(work)
        try:
            yield work
        finally:
            with suppress(ValueError):  # a discarded coroutine ends in another context
                _work.reset(token)
            self.drop(work)

    def drop(self, work: Work) -> None:
        """End work that has finished or was abandoned."""
        self._in_flight.discard(work)
        self._schedule_check()

    @property
    def busy(self) -> bool:
        """Whether anything in flight does not sleep on this clock."""
        return any(not work.sleeping for work in self._in_flight)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing sleeps on this clock and nothing is in flight."""
        return self._next() is None and not self.busy

    @asynccontextmanager
    async def attempt(self, body: object, *, elsewhere: bool) -> AsyncIterator[None]:
        with self.working(elsewhere=elsewhere, patience=self.patience), clock_of_step(self):
            yield

    def watched(self, store: Store) -> Store:
        return store if isinstance(store, WatchedStore) else WatchedStore(store, self)

    # -- jumping ------------------------------------------------------------------------------

    def _schedule_check(self) -> None:
        """Schedule a check whether the loop is idle."""
        self._quiet_rounds = 0
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # at the end of a program, with no loop left to wait on
        if isinstance(self._watch, asyncio.TimerHandle) or self._loop is not loop:
            if self._watch is not None:
                self._watch.cancel()
            self._watch = None
        if self._watch is None:
            self._loop = loop
            self._watch = loop.call_soon(self._check_idle)

    def _check_idle(self) -> None:
        assert self._loop is not None
        loop, self._watch = self._loop, None
        next_at = self._next()
        if not self._settling and (next_at is None or self._holds):
            return  # no sleeper; the next one calls _schedule_check
        ready = getattr(loop, "_ready", None)
        self._quiet_rounds = 0 if ready else self._quiet_rounds + 1
        if self._quiet_rounds < (BLIND_ROUNDS if ready is None else ROUNDS):
            self._watch = loop.call_soon(self._check_idle)
            return
        pause = self._pause(loop)
        if pause > 0:
            self._watch = loop.call_later(pause, self._check_idle)
            return
        self._quiet_since = None
        if self._settling:
            settling, self._settling = self._settling, []
            for settled in settling:
                wake(settled)
        else:
            self.jump()
        self._schedule_check()

    def _next(self) -> int | None:
        """The moment of the next sleeper, in microseconds of this clock."""
        with self._lock:
            while self._sleepers and self._sleepers[0][3].done():
                heapq.heappop(self._sleepers)
            return self._sleepers[0][0] if self._sleepers else None

    def _pause(self, loop: asyncio.AbstractEventLoop) -> float:
        """How long, in real seconds, to wait for work in flight before the next jump."""
        awake = [work for work in self._in_flight if not work.sleeping]
        if not awake:
            return 0.0
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        patient = [work for work in awake if work.elsewhere or _has_files(loop)]
        ends = [
            self._quiet_since + self._grace,
            *(work.started_at + work.patience for work in patient),
        ]
        return min(max(ends) - now, LONGEST_PAUSE)


def _has_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop waits for sockets or pipes other than its own self-pipe."""
    selector = getattr(loop, "_selector", None)
    return selector is not None and len(selector.get_map() or ()) > 1


class _Watched:
    """Holds the virtual clock during each call."""

    _virtual: VirtualClock

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        with self._virtual.working():
            return await call()


class WatchedStore(_Watched, WrappedStore):
    """A store whose calls hold a virtual clock."""

    def __init__(self, inner: Store, clock: VirtualClock) -> None:
        super().__init__(inner)
        self._virtual = clock

    def __getattr__(self, name: str) -> Any:
        """Attributes of the store beyond the port."""
        return getattr(self.inner, name)

    def queue(self) -> Queue:
        return WatchedQueue(self.inner.queue(), self._virtual)


class WatchedQueue(_Watched, WrappedQueue):
    """A queue whose calls hold a virtual clock."""

    def __init__(self, inner: Queue, clock: VirtualClock) -> None:
        super().__init__(inner)
        self._virtual = clock
