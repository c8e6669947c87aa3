"""Drain: how long what runs may take to end, once its process is to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from outlast.ports.clock import Clock, LeapingClock

EMBEDDED_SECONDS = 5.0
"""For an app inside another program, which wants to end."""


class Drain:
    """A time limit that can be cut short."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """The time is over."""
        self._hurry.set()

    async def wait_for(self, end: Coroutine[Any, Any, None]) -> None:
        """Return when `end` does, or when the time is over."""
        # Of the clocks of tests, only one that leaps is sure to get there.
        sleep = self._clock.sleep if isinstance(self._clock, LeapingClock) else asyncio.sleep
        parts = (end, self._hurry.wait(), sleep(self._seconds))
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in parts]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
