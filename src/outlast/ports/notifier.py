"""Notifier: a doorbell. It says that looking may be worth it, never what will be found.

A ring may be lost, doubled or late: whoever waits looks again after a while all the same.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Protocol

from outlast.model.decision import News
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
        """How often it has rung: read it before you look, and pass it to `wait`."""
        ...

    def rings_for(self, news: News) -> int:
        """How often it has rung for that: for those whom nothing else concerns."""
        ...

    def ring(self, news: News = News.ANY) -> None:
        """Wake everybody who waits for such news. Never blocks and never fails."""
        ...

    def wake(self, news: News = News.ANY) -> None:
        """Wake those who wait in this process, and nobody else."""
        ...

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, news: News | None = None
    ) -> bool:
        """Return True at a ring after `since`, or False after `seconds` on `clock`. With `news`
        only such a ring counts, and `since` is what `rings_for` gave."""
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
        self._rings_for = dict.fromkeys(News, 0)
        # Woken in the order in which they came, so that a simulation can be repeated.
        self._waiting: dict[_Ticket, News] = {}

    @property
    def rings(self) -> int:
        return self._rings

    def rings_for(self, news: News) -> int:
        return sum(count for kind, count in self._rings_for.items() if kind & news)

    def ring(self, news: News = News.ANY) -> None:
        self.rung += 1  # threads may lose a count to each other, never the last
        self.wake(news)

    def wake(self, news: News = News.ANY) -> None:
        with self._lock:
            self._rings += 1
            for kind in self._rings_for:
                self._rings_for[kind] += bool(kind & news)
            waiting = [one for one, wanted in self._waiting.items() if wanted & news]
            for ticket in waiting:
                del self._waiting[ticket]
        for loop, future in waiting:
            # A loop that was closed meanwhile has nobody left to wake.
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, news: News | None = None
    ) -> bool:
        loop = asyncio.get_running_loop()
        rung: asyncio.Future[bool] = loop.create_future()
        ticket = (loop, rung)
        with self._lock:
            if (self._rings if news is None else self.rings_for(news)) != since:
                return True
            self._waiting[ticket] = News.ANY if news is None else news
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
