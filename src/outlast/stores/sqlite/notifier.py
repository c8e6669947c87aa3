"""A wake-up channel between processes on one file: nobody can send a wake-up there, but everybody can see that somebody
else has written.

::

    commit here ── send a wake-up ──▶ waiters here, at once
    commit of another process ──▶ a number in the file ◀── every tenth of a second, while somebody
                                                           waits: has it changed?

The number is SQLite's `data_version` as the connection that writes sees it: it changes when somebody
else commits, and not when we do. To look costs microseconds, and no lock.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier

LOOK = 0.1
MISSED = 1.0
"""Seconds without a look after which whoever waits next looks instead."""
BETWEEN_LOOKS = 1.0
"""Seconds between two times that those who hold runs are told."""


class SqliteNotifier(LocalNotifier):
    """Sends wake-ups here, and for what others write while somebody waits here. `version` gives the number, or
    None if it cannot be seen now. Where time is not the machine's, nobody looks."""

    def __init__(self, version: Callable[[], int | None]) -> None:
        super().__init__()
        self._version = version
        self._seen: int | None = None
        self._waiters = 0
        self._told, self._is_owed = -BETWEEN_LOOKS, False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.TimerHandle | None = None
        self._looked_at = 0.0

    @property
    def is_listening(self) -> bool:
        """Whether somebody here looks at what others write, so that there is no need to look for it
        elsewhere. A loop that nobody runs any more, or that stands still, looks at nothing."""
        return self._loop is not None and time.monotonic() - self._looked_at < MISSED

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
        self._loop = loop  # if another one goes on after all, it sees that
        self._look(loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop is not self._loop:
            return
        if not self._waiters:
            self._loop = self._next = None
            return
        self._next = loop.call_later(LOOK, self._look, loop)
        self._looked_at = time.monotonic()
        version = self._version()
        if version is not None and version != self._seen:
            self._seen, self._is_owed = version, True
            self.wake_local()
        # Nobody knows for which run it was, so who holds many has to look at all of them.
        if self._is_owed and loop.time() - self._told >= BETWEEN_LOOKS:
            self._told, self._is_owed = loop.time(), False
            self._call_listeners(None)
