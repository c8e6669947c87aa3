"""VirtualClock: when nothing is left to do, it leaps to the next moment at which something is.

::

    async with outlast.testing.app(checkout) as app:      # its clock is one of these
        run = await app.start(checkout(order))
        await run.result()                                # thirty days, in milliseconds

Idle means: no callback is ready on the event loop, and nothing that the clock was told of is under
way. It is told of a store's calls and of the bodies of steps. Who sleeps on the clock itself, be it
a body or a store that is slow on purpose, waits for the leap and does not hold it up.

======================= ==================================================================
under way               holds the clock
======================= ==================================================================
a call of a store       until it returns
a body in a thread or a until it ends, for `patience` seconds of real time at most: a step
process                 that hangs shall meet its timeout
an async body           the same, if the loop has a socket or a pipe open; if not, for
                        `grace` seconds of real time before each leap, because what it
                        awaits may never come
======================= ==================================================================

With nothing of that under way, as on the memory store with steps that do not wait, no real time
passes and the order of all that happens is always the same.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any, TypeVar

from outlast.errors import WorkflowMisuse
from outlast.ports.clock import Clock
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.testing.clock import START, ManualClock, wake
from outlast.testkit.wrapped_store import WrappedQueue, WrappedStore

T = TypeVar("T")

GRACE = 0.02
PATIENCE = 10.0
# asyncio's own loops can be asked whether a callback is ready. Of others we only know that nobody
# had anything to do if it stays quiet for so many rounds.
ROUNDS, BLIND_ROUNDS = 2, 100
LONGEST_PAUSE = 0.1


class Work:
    """Something that is under way."""

    __slots__ = ("begun", "elsewhere", "patience", "sleeping")

    def __init__(self, *, elsewhere: bool, patience: float) -> None:
        self.begun = time.monotonic()
        self.elsewhere = elsewhere
        self.patience = patience
        self.sleeping = 0


_work: ContextVar[tuple[Work, ...]] = ContextVar("outlast_virtual_work", default=())


_clock: ContextVar[Clock] = ContextVar("outlast_virtual_clock")


async def sleep(seconds: float) -> None:
    """Take so long, in a step under test, on the clock of the app that runs it."""
    try:
        clock = _clock.get()
    except LookupError:
        raise WorkflowMisuse("outlast.testing.sleep() works in a step on a virtual clock") from None
    await clock.sleep(seconds)


@contextmanager
def clock_of_step(clock: Clock) -> Iterator[None]:
    """Around the body of a step: the clock that `sleep` means."""
    token = _clock.set(clock)
    try:
        yield
    finally:
        with suppress(ValueError):
            _clock.reset(token)


class VirtualClock(ManualClock):
    """A clock that leaps when all is idle. For the one event loop that a test runs on.

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
        self.leaps = 0
        self._grace = grace
        self.patience = patience
        self._under_way: set[Work] = set()
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
                self._look_out()
                await super().sleep(seconds)
        finally:
            for work in works:
                work.sleeping -= 1

    async def settle(self) -> None:
        """Return when everything that can happen now has happened. No time passes."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        self._look_out()
        await settled

    def leap(self) -> bool:
        """Go to the next sleeper now, whatever is under way; False if nobody sleeps."""
        next_at = self._next()
        if next_at is None:
            return False
        self.leaps += 1
        self.advance((next_at - self._passed) / 1_000_000)
        return True

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let no time pass by itself in this block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._look_out()

    # -- what is under way --------------------------------------------------------------------

    @contextmanager
    def working(self, *, elsewhere: bool = True, patience: float = math.inf) -> Iterator[Work]:
        """ClaimOnCreate the clock in this block, for `patience` seconds of real time at most."""
        work = Work(elsewhere=elsewhere, patience=patience)
        token = _work.set((*_work.get(), work))
        self._under_way.add(work)
        try:
            yield work
        finally:
            with suppress(ValueError):  # a coroutine that is thrown away ends in another context
                _work.reset(token)
            self.drop(work)

    def drop(self, work: Work) -> None:
        """It is over, or nobody will ever hear of it again."""
        self._under_way.discard(work)
        self._look_out()

    @property
    def busy(self) -> bool:
        """Whether something is under way that does not sleep on this clock."""
        return any(not work.sleeping for work in self._under_way)

    @property
    def is_at_rest(self) -> bool:
        """Whether nobody waits for time to pass, and nothing is under way."""
        return self._next() is None and not self.busy

    @asynccontextmanager
    async def attempt(self, body: object, *, elsewhere: bool) -> AsyncIterator[None]:
        with self.working(elsewhere=elsewhere, patience=self.patience), clock_of_step(self):
            yield

    def watched(self, store: Store) -> Store:
        return store if isinstance(store, WatchedStore) else WatchedStore(store, self)

    # -- leaping ------------------------------------------------------------------------------

    def _look_out(self) -> None:
        """Something has changed: see to it that somebody looks whether all is idle."""
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
            self._watch = loop.call_soon(self._look)

    def _look(self) -> None:
        assert self._loop is not None
        loop, self._watch = self._loop, None
        next_at = self._next()
        if not self._settling and (next_at is None or self._holds):
            return  # nobody waits for a leap; whoever comes calls _look_out
        ready = getattr(loop, "_ready", None)
        self._quiet_rounds = 0 if ready else self._quiet_rounds + 1
        if self._quiet_rounds < (BLIND_ROUNDS if ready is None else ROUNDS):
            self._watch = loop.call_soon(self._look)
            return
        pause = self._pause(loop)
        if pause > 0:
            self._watch = loop.call_later(pause, self._look)
            return
        self._quiet_since = None
        if self._settling:
            settling, self._settling = self._settling, []
            for settled in settling:
                wake(settled)
        else:
            self.leap()
        self._look_out()

    def _next(self) -> int | None:
        """The moment of the next sleeper, in microseconds of this clock."""
        with self._lock:
            while self._sleepers and self._sleepers[0][3].done():
                heapq.heappop(self._sleepers)
            return self._sleepers[0][0] if self._sleepers else None

    def _pause(self, loop: asyncio.AbstractEventLoop) -> float:
        """How long, in real seconds, to wait for what is under way before the next leap."""
        awake = [work for work in self._under_way if not work.sleeping]
        if not awake:
            return 0.0
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        patient = [work for work in awake if work.elsewhere or _has_files(loop)]
        ends = [self._quiet_since + self._grace, *(work.begun + work.patience for work in patient)]
        return min(max(ends) - now, LONGEST_PAUSE)


def _has_files(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a loop waits for sockets or pipes, beside the pipe by which it is woken."""
    selector = getattr(loop, "_selector", None)
    return selector is not None and len(selector.get_map() or ()) > 1


class _Watched:
    """Its calls hold a virtual clock."""

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
        """What this store has beyond the port."""
        return getattr(self.inner, name)

    def queue(self) -> Queue:
        return WatchedQueue(self.inner.queue(), self._virtual)


class WatchedQueue(_Watched, WrappedQueue):
    """A queue whose calls hold a virtual clock."""

    def __init__(self, inner: Queue, clock: VirtualClock) -> None:
        super().__init__(inner)
        self._virtual = clock
