"""SqliteNotifier: wake-ups between processes on one file, by polling SQLite's `data_version`.

::

    commit here ── wake ──▶ waiters here, at once
    commit of another process ──▶ data_version ◀── read every 0.1 s while a coroutine waits here

`data_version`, as the writer's connection sees it, changes when another connection commits. Reading it
takes microseconds and no lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier

POLL_INTERVAL_S = 0.1
MAX_POLL_DELAY_S = 1.0
"""After this time without a poll, the next waiter takes over polling."""
INBOX_INTERVAL_S = 1.0
"""How often run owners are asked to read all inboxes: the number does not say which run it was."""


class SqliteNotifier(LocalNotifier):
    """Wakes waiters here, and polls for commits of other processes while there are waiters. `version`
    reads the number, or None if it cannot be read now. With a clock of a test nothing is polled."""

    def __init__(
        self, version: Callable[[], int | None], has_dead_owner: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__()
        self._version = version
        self._has_dead_owner = has_dead_owner
        self._seen: int | None = None
        self._waiters = 0
        self._listeners_called_at, self._is_owed = -INBOX_INTERVAL_S, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None
        self._polled_at = 0.0

    @property
    def is_listening(self) -> bool:
        """Whether an event loop here polls now. A loop that has stopped, or is blocked, does not."""
        return self._loop is not None and time.monotonic() - self._polled_at < MAX_POLL_DELAY_S

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        if not isinstance(clock, SystemClock):
            return await super().wait(clock, seconds, since=since, kind=kind)
        self._count(1)
        try:
            if not self.is_listening:
                self._begin(asyncio.get_running_loop())
            return await super().wait(clock, seconds, since=since, kind=kind)
        finally:
            self._count(-1)

    def _count(self, waiters: int) -> None:
        with self._lock:
            self._waiters += waiters

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is loop and self._next is not None:
            self._next.cancel()
        self._loop = loop  # a loop that polled before sees this and stops
        self._poll(loop)

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        if not self._waiters:
            self._loop = self._next = None
            return
        self._next = loop.call_later(POLL_INTERVAL_S, self._poll, loop)
        self._polled_at = time.monotonic()
        version = self._version()
        if version is not None and version != self._seen:
            self._seen, self._is_owed = version, True
            self.wake_local()
        if self._has_dead_owner():
            self.wake_local(WakeupKind.RUNS | WakeupKind.TASKS)
        if self._is_owed and loop.time() - self._listeners_called_at >= INBOX_INTERVAL_S:
            self._listeners_called_at, self._is_owed = loop.time(), False
            self._call_listeners(None)
