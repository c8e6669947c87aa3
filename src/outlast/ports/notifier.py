"""Notifier: a doorbell. It says that looking may be worth it, never what will be found.

A ring may be lost, doubled or late: whoever waits looks again after a while all the same.

WakeupChannel: how processes tell each other, past the store, that looking may be worth it.

A doorbell is something outside the store: a queue of a cloud, a broker that is there already. It
carries no work and knows of none. A message says "look"; what there is to do, the store says. So a
message may be lost, doubled, late, stale or overtaken, and nothing but time is lost.

::

    somebody's commit ──▶ store ◀── is there something due that nobody has? ── relay
                                                                  yes: ring ──▶ one of the others
    relay ◀── heard ── doorbell         wakes those who look here, then asks the store again:
          ── settle(left=False) ──▶     nothing is left to do: the message is done with
          ── settle(left=True)  ──▶     something is: the message goes on to another process
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock

Heard = Callable[[Collection[str] | None], object]
"""Called with the ids of runs; with None if it may be any."""


class Notifier(Protocol):
    """Wakes those who wait for work."""

    doorbell: WakeupChannel | None
    """By what else this process hears others, if it does: an app's `WakeupChannel`."""

    rung: int
    """How often `ring` was called."""

    @property
    def rings(self) -> int:
        """How often it has rung: read it before you look, and pass it to `wait`."""
        ...

    def rings_for(self, news: WakeupKind) -> int:
        """How often it has rung for that: for those whom nothing else concerns."""
        ...

    def ring(self, news: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        """Wake everybody who waits for such news; `runs` have something in their inbox, which is
        for whoever holds them. Never blocks and never fails."""
        ...

    def wake(self, news: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        """Wake those who wait in this process, and nobody else."""
        ...

    def listen(self, heard: Heard) -> Callable[[], None]:
        """Have `heard` called, in the loop that is running, with the ids of runs that a ring names;
        what is returned ends that."""
        ...

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, news: WakeupKind | None = None
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
        self.doorbell: WakeupChannel | None = None
        self.rung = 0
        self._lock = threading.Lock()
        self._rings = 0
        self._rings_for = dict.fromkeys(
            map(int, WakeupKind), 0
        )  # plain numbers: they are compared often
        self._listeners: list[tuple[asyncio.AbstractEventLoop, Heard]] = []
        # Woken in the order in which they came, so that a simulation can be repeated.
        self._waiting: dict[_Ticket, int] = {}

    @property
    def rings(self) -> int:
        return self._rings

    def rings_for(self, news: WakeupKind) -> int:
        wanted = int(news)
        return sum(count for kind, count in self._rings_for.items() if kind & wanted)

    def ring(self, news: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        self.rung += 1  # threads may lose a count to each other, never the last
        self.wake(news, runs=runs)

    def listen(self, heard: Heard) -> Callable[[], None]:
        listener = (asyncio.get_running_loop(), heard)
        self._listeners = [*self._listeners, listener]

        def end() -> None:
            self._listeners = [one for one in self._listeners if one is not listener]

        return end

    def wake(self, news: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        if runs:
            self._tell_listeners(runs)
        told = int(news)
        with self._lock:
            self._rings += 1
            for kind in self._rings_for:
                self._rings_for[kind] += bool(kind & told)
            waiting = [one for one, wanted in self._waiting.items() if wanted & told]
            for ticket in waiting:
                del self._waiting[ticket]
        for loop, future in waiting:
            # A loop that was closed meanwhile has nobody left to wake.
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake, future)

    def abandon(self) -> None:
        """In a forked child: forget what waits and listens, which lives in the parent."""
        self._waiting.clear()
        self._listeners = []

    def _tell_listeners(self, runs: Collection[str] | None) -> None:
        for loop, heard in self._listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(heard, runs)

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, news: WakeupKind | None = None
    ) -> bool:
        loop = asyncio.get_running_loop()
        rung: asyncio.Future[bool] = loop.create_future()
        ticket = (loop, rung)
        with self._lock:
            if (self._rings if news is None else self.rings_for(news)) != since:
                return True
            self._waiting[ticket] = int(WakeupKind.ANY if news is None else news)
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


MOST_BYTES = 7_000
"""Of a message: PostgreSQL takes 8,000."""


def to_message(sender: str, news: WakeupKind, runs: Collection[str]) -> str:
    """A ring, for those who carry it to other processes. Too many runs are left out: their holders
    look by themselves after a while."""
    message = f"{sender} {news:d}"
    named = f"{message} {msgspec.json.encode(sorted(runs)).decode()}" if runs else message
    return named if len(named.encode()) <= MOST_BYTES else message


def from_message(message: str) -> tuple[str, WakeupKind, Collection[str]]:
    """Who rang, what for, and which runs it named. Of a message that is none of these, anything."""
    sender, _, rest = message.partition(" ")
    news, _, runs = rest.partition(" ")
    try:
        named = msgspec.json.decode(runs, type=list[str]) if runs else []
        return sender, WakeupKind(int(news)) & WakeupKind.ANY, named
    except (ValueError, msgspec.MsgspecError):
        return sender, WakeupKind.ANY, ()


class WakeupChannel(ABC):
    """A bell between processes. It serves one app, which opens and closes it."""

    is_listening: bool = False
    """Whether messages of others are heard now. While they are, stores are looked at more rarely."""

    heard: int = 0
    """How many messages were heard: read it before you look, and pass it to `settle`."""

    @abstractmethod
    async def open(self, wake: Callable[[], None]) -> None:
        """Begin to listen, and call `wake` when a message has come."""

    @abstractmethod
    async def close(self) -> None:
        """Stop. What was heard and not settled is left to others. Closing twice is fine."""

    @abstractmethod
    async def ring(self) -> None:
        """Tell one of the processes that listen. Any `OutlastError` means: perhaps nobody knows."""

    @abstractmethod
    async def settle(self, heard: int, *, left: bool) -> int:
        """The store was looked at after the first `heard` messages had come. If something is
        `left` that nobody has taken, they go on to others; else they are done with. Returns how
        many went on. What is never settled comes to somebody again. Never fails."""

    async def describe(self) -> dict[str, str]:
        """What there is to know of it for whoever checks its settings, in words of its own kind."""
        return {}
