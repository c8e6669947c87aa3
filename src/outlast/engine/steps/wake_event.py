"""WakeEvent: an event for the one task that waits for it."""

from __future__ import annotations

import asyncio


class WakeEvent:
    """What `asyncio.Event` is for many who wait, for one: a run waits for every step."""

    __slots__ = ("_is_set", "_loop", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Something has arrived."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return once `set` was called since the last return; at once if it was already."""
        if not self._is_set:
            waiter = self._waiter = asyncio.Future(loop=self._loop)
            try:
                await waiter
            finally:
                # One who was cancelled may get here when the next one waits already.
                if self._waiter is waiter:
                    self._waiter = None
        self._is_set = False
