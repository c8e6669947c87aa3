"""Coroutines of outlast, called from synchronous code in its own thread and its own transaction.

On a connection of the thread nothing has to be waited for: every statement blocks until it is
answered. So a coroutine runs to its end in one go, without an event loop, and what would sleep
blocks the thread instead.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier

T = TypeVar("T")


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    coroutine.close()
    raise AssertionError(
        "a coroutine that runs in its caller's thread has waited for an event loop"
    )


class BlockingClock(SystemClock):
    """The machine's clock; whoever sleeps on it holds up the thread."""

    async def sleep(self, seconds: float) -> None:
        threading.Event().wait(max(seconds, 0.0))


class BlockingNotifier(LocalNotifier):
    """Nobody sends a wake-up in the caller's own thread: who waits looks again after a moment."""

    LOOK_AGAIN = 0.1

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        await clock.sleep(min(seconds, self.LOOK_AGAIN))
        return False
