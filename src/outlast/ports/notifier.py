"""Wake-ups: hints that work may be available. The store alone knows what work there is.

A wake-up may be lost, doubled or late, so every waiter also polls. Two ports carry wake-ups:

- `Notifier` belongs to a store. It wakes waiters in this process and, where the database has a
  means (NOTIFY, pub/sub, a data version), in the other processes on the same store.
- `WakeupChannel` works past the store, by a cloud queue. A message says "poll now" and names no
  work::

    commit ──▶ store ◀── is there due work that no process holds? ── wake-up relay
                                                           yes: send ──▶ one other process
    wake-up relay ◀── message ── channel     wakes the waiters here, then asks the store again:
          ── settle(left=False) ──▶     no work is left: the message is deleted
          ── settle(left=True)  ──▶     work is left: the message goes on to another process
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

OnInbox = Callable[[Collection[str] | None], object]
"""Called with the ids of runs whose inbox has new items; with None if it may be any run."""


class Notifier(Protocol):
    """Wakes those who wait for work."""

    wakeup_channel: WakeupChannel | None
    """The app's `WakeupChannel`, if it has one."""

    wake_calls: int
    """How often `wake` was called in this process."""

    @property
    def wakeups(self) -> int:
        """How many wake-ups have come: read it before you poll, and pass it to `wait`."""
        ...

    def wakeups_for(self, kind: WakeupKind) -> int:
        """How many wake-ups of this kind have come."""
        ...

    def wake(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        """Wake all waiters for this kind, here and in other processes. `runs` have a new item in
        their inbox: their owners read it. Never blocks and never fails."""
        ...

    def wake_local(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        """As `wake`, but in this process only."""
        ...

    def listen(self, on_inbox: OnInbox) -> Callable[[], None]:
        """Call `on_inbox`, in the running event loop, with the run ids of each wake-up that names
        any. Returns a function that ends this."""
        ...

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        """Return True at a wake-up after `since`, or False after `seconds` on `clock`. With `kind`
        only such wake-ups count, and `since` is a value of `wakeups_for`."""
        ...


def hears_all(notifier: Notifier) -> bool:
    """Whether commits of other processes, too, cause wake-ups here: by the notifier itself, or by
    the wake-up channel."""
    channel = notifier.wakeup_channel
    return bool(getattr(notifier, "is_listening", False)) or bool(channel and channel.is_listening)


class LocalNotifier:
    """Wake-ups within one process. Safe from several threads."""

    def __init__(self) -> None:
        self.wakeup_channel: WakeupChannel | None = None
        self.wake_calls = 0
        self._lock = threading.Lock()
        self._wakeups = 0
        # Plain numbers: an IntFlag takes several times as long to compare.
        self._wakeups_for = dict.fromkeys(map(int, WakeupKind), 0)
        self._listeners: list[tuple[asyncio.AbstractEventLoop, OnInbox]] = []
        # Woken in the order in which they came, so that a simulation can be repeated.
        self._waiting: dict[_Ticket, int] = {}

    @property
    def wakeups(self) -> int:
        return self._wakeups

    def wakeups_for(self, kind: WakeupKind) -> int:
        wanted = int(kind)
        return sum(count for single, count in self._wakeups_for.items() if single & wanted)

    def wake(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        self.wake_calls += 1  # two threads may count as one: readers only compare for change
        self.wake_local(kind, runs=runs)

    def wake_local(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        if runs:
            self._call_listeners(runs)
        sent = int(kind)
        with self._lock:
            self._wakeups += 1
            for single in self._wakeups_for:
                self._wakeups_for[single] += bool(single & sent)
            waiting = [one for one, wanted in self._waiting.items() if wanted & sent]
            for ticket in waiting:
                del self._waiting[ticket]
        for loop, future in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, future)

    def listen(self, on_inbox: OnInbox) -> Callable[[], None]:
        listener = (asyncio.get_running_loop(), on_inbox)
        self._listeners = [*self._listeners, listener]

        def end() -> None:
            self._listeners = [one for one in self._listeners if one is not listener]

        return end

    def abandon(self) -> None:
        """In a forked child: drop waiters and listeners, which live in the parent."""
        self._waiting.clear()
        self._listeners = []

    def _call_listeners(self, runs: Collection[str] | None) -> None:
        for loop, on_inbox in self._listeners:
            if not loop.is_closed():
                loop.call_soon_threadsafe(on_inbox, runs)

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        ticket = (loop, woken)
        with self._lock:
            if (self._wakeups if kind is None else self.wakeups_for(kind)) != since:
                return True
            self._waiting[ticket] = int(WakeupKind.ANY if kind is None else kind)
        pause = asyncio.ensure_future(clock.sleep(seconds))
        try:
            await asyncio.wait((woken, pause), return_when=asyncio.FIRST_COMPLETED)
            return woken.done()
        finally:
            with self._lock:
                self._waiting.pop(ticket, None)
            pause.cancel()


_Ticket = tuple[asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


def _resolve(future: asyncio.Future[bool]) -> None:
    if not future.done():
        future.set_result(True)


MAX_MESSAGE_BYTES = 7_000
"""PostgreSQL's NOTIFY takes 8,000."""


def to_message(sender: str, kind: WakeupKind, runs: Collection[str]) -> str:
    """A wake-up as text, for other processes. Run ids that do not fit are left out: the owners of
    those runs find their items when they poll."""
    message = f"{sender} {kind:d}"
    named = f"{message} {msgspec.json.encode(sorted(runs)).decode()}" if runs else message
    return named if len(named.encode()) <= MAX_MESSAGE_BYTES else message


def from_message(message: str) -> tuple[str, WakeupKind, Collection[str]]:
    """Sender, kind and run ids of a wake-up. A malformed message counts as a wake-up of any kind."""
    sender, _, rest = message.partition(" ")
    kind, _, runs = rest.partition(" ")
    try:
        named = msgspec.json.decode(runs, type=list[str]) if runs else []
        return sender, WakeupKind(int(kind)) & WakeupKind.ANY, named
    except (ValueError, msgspec.MsgspecError):
        return sender, WakeupKind.ANY, ()


class WakeupChannel(ABC):
    """Wake-ups between processes, past the store. It serves one app, which opens and closes it."""

    is_listening: bool = False
    """Whether messages of other processes arrive now. While they do, stores are polled less often."""

    received: int = 0
    """How many messages have arrived: read it before you poll, and pass it to `settle`."""

    @abstractmethod
    async def open(self, wake: Callable[[], None]) -> None:
        """Start to listen, and call `wake` for each message."""

    @abstractmethod
    async def close(self) -> None:
        """Stop. Messages that were received and not settled go to other processes. Closing twice
        is fine."""

    @abstractmethod
    async def send(self) -> None:
        """Wake one of the processes that listen. After an `OutlastError` the message may be lost."""

    @abstractmethod
    async def settle(self, received: int, *, left: bool) -> int:
        """Decide about the first `received` messages, after a poll of the store. If work is `left`
        that no process holds, they go on to other processes; else they are deleted. Returns how
        many went on. A message that is never settled is delivered again. Never fails."""

    async def describe(self) -> dict[str, str]:
        """The channel's settings, for health checks, in the words of its service."""
        return {}
