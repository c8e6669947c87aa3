"""Wake-ups in a Django process, and coroutines of outlast in synchronous code.

- `wake_on_commit`: wakes the workers of this process when a transaction commits.
- `NotificationListener`: a thread with a Django connection that receives PostgreSQL notifications. It is a hint:
  workers also poll, and a connection pooler does not support LISTEN.
- `run_blocking`: runs a coroutine in the calling thread and its transaction. Every statement blocks until
  it is answered, so the coroutine needs no event loop, and a sleep blocks the thread.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import weakref
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError, connections, transaction

from outlast.model.commit import Commit, Outcome, Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run_contents import Receipt, Send
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier, from_message
from outlast.ports.store import Store
from outlast.stores.postgres.notifier import PostgresNotifier

_listening: weakref.WeakSet[object] = weakref.WeakSet()


def listen(notifier: Notifier) -> None:
    """Wake the waiters of `notifier` whenever a transaction of this process commits work for them."""
    _listening.add(notifier)


def wake_on_commit(alias: str, kind: WakeupKind = WakeupKind.ANY) -> None:
    """Wake the workers of this process when the current transaction is committed, or now if there is
    none."""
    own = connections[alias]
    # With manual commits Django does not know when: workers find the work by polling.
    if _listening and (own.in_atomic_block or own.get_autocommit()):
        transaction.on_commit(partial(_wake, kind), using=alias, robust=True)


def _wake(kind: WakeupKind) -> None:
    for notifier in list(_listening):
        notifier.wake_local(kind)  # type: ignore[attr-defined]


class WakingStore(Store):
    """A mixin for stores in the calling thread's transaction: wakes workers after the commit."""

    alias: str

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        outcomes = await super().commit(commits, atomic=atomic, timeout=timeout)  # type: ignore[safe-super]
        wake_on_commit(self.alias)
        return outcomes

    async def send(self, sends: Sequence[Send], **options: Any) -> list[Receipt | Refusal]:
        receipts = await super().send(sends, **options)
        wake_on_commit(self.alias)
        return receipts


_logger = logging.getLogger("outlast.django")

GATHER = 0.01
"""Seconds in which the driver reads further notifications after the first one."""

LOOK_AGAIN = 5.0
"""Seconds after which the driver is polled anyway: it may have buffered a notification."""

RETRY = 2.0


class NotificationListener:
    """Wakes the waiters of a notifier, between `start` and `stop`. Both are idempotent."""

    def __init__(self, alias: str, notifier: PostgresNotifier) -> None:
        self._alias = alias
        self._notifier = notifier
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._ears: tuple[socket.socket, socket.socket] | None = None

    def start(self) -> None:
        """Start the thread, unless it is running."""
        if self._thread is None:
            self._stopping.clear()
            self._ears = socket.socketpair()
            self._thread = threading.Thread(
                target=self._run, args=(self._ears[1],), name="outlast-listens", daemon=True
            )
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for its end. Blocks: do not call it in an event loop."""
        thread, self._thread = self._thread, None
        ears, self._ears = self._ears, None
        self._stopping.set()
        if thread is not None and ears is not None:
            ears[0].send(b"!")
            thread.join()
            for ear in ears:
                ear.close()

    def _run(self, stopped: socket.socket) -> None:
        import psycopg

        while not self._stopping.is_set():
            try:
                self._listen(stopped)
            except (DatabaseError, psycopg.Error) as error:
                _logger.debug("cannot listen: %s", error)
                self._stopping.wait(RETRY)
            finally:
                self._notifier.is_listening = False
                connections[self._alias].close()

    def _listen(self, stopped: socket.socket) -> None:
        own = connections[self._alias]
        own.ensure_connection()
        own.connection.execute(f'LISTEN "{self._notifier.channel}"'.encode())
        self._notifier.is_listening = True
        self._notifier.wake_local()  # for notifications that were sent before LISTEN
        with selectors.DefaultSelector() as selector:
            selector.register(stopped, selectors.EVENT_READ)
            selector.register(own.connection.fileno(), selectors.EVENT_READ)
            while not self._stopping.is_set():
                for heard in own.connection.notifies(timeout=GATHER):
                    sender, kind, runs = from_message(heard.payload)
                    if sender != self._notifier.name:
                        self._notifier.wake_local(kind, runs=runs)
                selector.select(LOOK_AGAIN)


T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError("a coroutine that runs without an event loop has waited for one")


class BlockingClock(SystemClock):
    """The system clock; a sleep blocks the thread."""

    async def sleep(self, seconds: float) -> None:
        threading.Event().wait(max(seconds, 0.0))


class BlockingNotifier(LocalNotifier):
    """For the calling thread, which receives no wake-ups: a waiter polls."""

    LOOK_AGAIN = 0.1

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        await clock.sleep(min(seconds, self.LOOK_AGAIN))
        return False
