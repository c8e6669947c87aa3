"""PollLoop: polls a store or a queue until it is stopped, and loses nothing that a poll has claimed.

A poll runs when a wake-up arrives, when something is due, and after a pause. A call that claims something must not be
cancelled: its answer would be lost, and what it claimed would stay claimed until its lease expires. So `stop` lets
such a call finish, and what it has claimed is given back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, TypeVar

from outlast.errors import Closed, StoreFault, TryAgain
from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import look_again_after
from outlast.ports.notifier import hears_all
from outlast.ports.store import Store

IDLE_S = 1.0
LISTENING_S = 5.0
"""Seconds between polls without a wake-up: more where the notifier hears other processes."""
SHORTEST_PAUSE_S = 0.001

T = TypeVar("T")


class NextPoll(NamedTuple):
    """When to poll again: after a pause, or at a wake-up of a kind. `delay_s` is waited even then."""

    pause_s: float
    wakeup: WakeupKind = WakeupKind.ANY
    delay_s: float = 0.0


class PollLoop:
    """Calls `poll` from `start` to `stop`. Calls that claim something go through `take`, and may last `timeout_s`
    seconds, as giving it back may. `what` names the poll in log lines."""

    def __init__(
        self,
        store: Store,
        what: str,
        *,
        timeout_s: float,
        log: logging.Logger,
        level: int = logging.WARNING,
        delay_s: float = 0.0,
    ) -> None:
        self.error: BaseException | None = None
        """Why the last poll failed."""
        self._store = store
        self._what = what
        self._timeout_s = timeout_s
        self._log = log
        self._level = level
        self._delay_s = delay_s
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped since."""
        return self._task is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether its task has ended or is being cancelled."""
        return self._task is None or self._task.done() or self._task.cancelling() > 0

    @property
    def is_taking(self) -> bool:
        """Whether a call that claims something is in flight."""
        return not self._idle.is_set()

    def start(self, poll: Callable[[], Awaitable[NextPoll | None]]) -> None:
        """Start to poll. `poll` returns when it wants to be called again; None is at once."""
        self._task = asyncio.create_task(self._run(poll), name=f"outlast: {self._what}")

    async def stop(self) -> None:
        """Stop, and wait until the loop has ended. Stopping twice is fine."""
        if self._task is None:
            return
        task = self._task
        self._stopping.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._timeout_s):
                    await self._idle.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._task = None
            self._stopping.clear()

    async def take(
        self,
        call: Callable[[], Awaitable[list[T]]],
        give_back: Callable[[list[T]], Awaitable[object]] | None = None,
    ) -> list[T]:
        """What the call claims; nothing if the loop is stopping: then that is given back."""
        if self._stopping.is_set():
            return []
        self._idle.clear()
        try:
            found = await call()
            if not self._stopping.is_set():
                return found
            if found and give_back is not None:
                await give_back(found)
            return []
        finally:
            self._idle.set()

    def pause_until(
        self,
        due: datetime | None,
        *,
        polled_at: datetime | None = None,
        jitter: float = 1.0,
        shortest_s: float = SHORTEST_PAUSE_S,
    ) -> float:
        """The seconds until the next poll, if something is `due` then. `jitter` is a factor that keeps processes
        which started together from polling together."""
        idle_s = LISTENING_S if hears_all(self._store.notifier) else IDLE_S
        pause_s = look_again_after(self._store.clock, idle_s * jitter)
        if due is None:
            return pause_s
        # What was due at the poll could not be claimed: its code is not here, or there is no room, or it is due by
        # this process's clock only. It is polled for soon, and then less and less often.
        away_s = abs((due - self._store.clock.now()).total_seconds())
        return max(
            min(away_s, IDLE_S if polled_at is not None and due <= polled_at else pause_s),
            shortest_s,
        )

    async def _run(self, poll: Callable[[], Awaitable[NextPoll | None]]) -> None:
        clock, notifier = self._store.clock, self._store.notifier
        again = NextPoll(IDLE_S, delay_s=self._delay_s)
        while True:
            if again.delay_s:
                # Not on the store's clock: this gives way to other tasks of this process.
                await asyncio.sleep(again.delay_s)
            seen = {kind: notifier.wakeups_for(kind) for kind in WakeupKind}
            seen[WakeupKind.ANY] = notifier.wakeups_for(WakeupKind.ANY)
            again = again._replace(pause_s=IDLE_S)
            try:
                found = await poll()
                raise_if_cancelled()  # a driver may swallow a cancellation, and `stop` waits for this task
                self.error = None
                if found is None:
                    continue
                again = found
            except Closed as error:
                self.error = error
                raise
            except (TryAgain, StoreFault, asyncio.CancelledError) as error:
                raise_if_cancelled()
                self.error = error
                # A fault of the store does not pass by itself: an operator has to see it.
                level = logging.ERROR if isinstance(error, StoreFault) else self._level
                self._log.log(level, "%s failed, trying again: %s", self._what, error)
            except Exception as error:  # noqa: BLE001 - the next poll may succeed
                self.error = error
                self._log.exception("%s failed unexpectedly, trying again", self._what)
            await notifier.wait(clock, again.pause_s, since=seen[again.wakeup], kind=again.wakeup)


def raise_if_cancelled() -> None:
    """Raise `CancelledError` if the current task is being cancelled. A cancelled call of the store, inside a task that
    is not, is a failed call: if it ended a background task, the engine would continue without it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class WakeEvent:
    """An `asyncio.Event` for a single waiter, which resets itself: cheaper, because a run waits for every step."""

    __slots__ = ("_is_set", "_loop", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter, or let its next `wait` return at once."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return when the event is set, or at once if it was set since the last wait."""
        if not self._is_set:
            waiter = self._waiter = asyncio.Future(loop=self._loop)
            try:
                await waiter
            finally:
                # A cancelled waiter may get here after the next one has started to wait.
                if self._waiter is waiter:
                    self._waiter = None
        self._is_set = False
