"""Notifier: a doorbell. It says that looking may be worth it, never what will be found.

A ring may be lost, doubled or late: whoever waits looks again after a while all the same.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from outlast.ports.clock import Clock
from outlast.ports.doorbell import Doorbell


class Notifier(Protocol):
    """Wakes those who wait for work."""

    doorbell: Doorbell | None
    """By what else this process hears others, if it does: an app's `Doorbell`."""

    rung: int
    """How often `ring` was called."""

    @property
    def rings(self) -> int:
        """How often it has rung: read it before you look for work, and pass it to `wait`."""
        ...

    def ring(self) -> None:
        """Wake everybody who waits. Never blocks and never fails."""
        ...

    def wake(self) -> None:
        """Wake those who wait in this process, and nobody else."""
        ...

    async def wait(self, clock: Clock, seconds: float, *, since: int) -> bool:
        """Return True at a ring after `since`, or False after `seconds` on `clock`."""
        ...


def hears_all(notifier: Notifier) -> bool:
    """Whether it rings, by and large, for what other processes do too: `is_listening` of a
    notifier that can tell, or of the doorbell beside it."""
    doorbell = notifier.doorbell
    return bool(getattr(notifier, "is_listening", False)) or bool(
        doorbell and doorbell.is_listening
    )


class LocalNotifier:
    """A doorbell within one process; it may be rung and waited for from several threads."""

    def __init__(self) -> None:
        self.doorbell: Doorbell | None = None
        self.rung = 0
        self._lock = threading.Lock()
        self._rings = 0
        # Woken in the order in which they came, so that a simulation can be repeated.
        self._waiting: dict[_Ticket, None] = {}

    @property
    def rings(self) -> int:
        return self._rings

    def ring(self) -> None:
        self.rung += 1  # threads may lose a count to each other, never the last
        self.wake()

    def wake(self) -> None:
        with self._lock:
            self._rings += 1
            waiting, self._waiting = self._waiting, {}
        for loop, future in waiting:
            # A loop that was closed meanwhile has nobody left to wake.
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)

    async def wait(self, clock: Clock, seconds: float, *, since: int) -> bool:
        loop = asyncio.get_running_loop()
        rung: asyncio.Future[bool] = loop.create_future()
        ticket = (loop, rung)
        with self._lock:
            if self._rings != since:
                return True
            self._waiting[ticket] = None
        pause = asyncio.ensure_future(clock.sleep(seconds))
        try:
            await asyncio.wait((rung, pause), return_when=asyncio.FIRST_COMPLETED)
            return rung.done()
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)
            pause.cancel()


_Ticket = tuple[asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


def _wake(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)
