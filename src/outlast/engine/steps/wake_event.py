"""WakeEvent: rung when something has arrived for one task that waits."""

from __future__ import annotations

import asyncio


class WakeEvent:
    """What `asyncio.Event` is for many who wait, for one: a run waits for every step."""

    __slots__ = ("_has_rung", "_loop", "_waiter")

    def __init__(self) -> None:
        self._has_rung = False
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        """Something has arrived."""
        self._has_rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return when it rings, or at once if it has since the last time."""
        if not self._has_rung:
            waiter = self._waiter = asyncio.Future(loop=self._loop)
            try:
                await waiter
            finally:
                # One who was cancelled may get here when the next one waits already.
                if self._waiter is waiter:
                    self._waiter = None
        self._has_rung = False
