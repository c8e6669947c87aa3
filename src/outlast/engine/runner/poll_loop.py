"""PollLoop: a loop that takes things from a store for ever, and loses nothing when it is stopped.

Whoever cancels a call that takes loses its answer, and what was taken stays held until its lease
ends. So a call that is under way is let come to its end, and what it brings is given back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class PollLoop:
    """Runs a loop from `start` to `stop`. Its calls that take go through `take`, and may last for
    `patience` seconds each, as giving back may."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not stopped since."""
        return self._task is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has told it to end."""
        return self._task is None or self._task.done() or self._task.cancelling() > 0

    @property
    def is_taking(self) -> bool:
        """Whether a call that takes is under way."""
        return not self._idle.is_set()

    def start(self, loop: Coroutine[Any, Any, None]) -> None:
        """Begin."""
        self._task = asyncio.create_task(loop)

    async def stop(self) -> None:
        """End it, and wait until it has. Stopping twice is fine."""
        if self._task is None:
            return
        task = self._task
        self._stopping.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * self._patience):
                    await self._idle.wait()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._task = None
            self._stopping.clear()

    async def take(
        self,
        call: Callable[[], Awaitable[list[T]]],
        give_back: Callable[[list[T]], Awaitable[object]] | None = None,
    ) -> list[T]:
        """What the call brings; nothing if it is to end, and that was given back."""
        if self._stopping.is_set():
            return []
        self._idle.clear()
        try:
            found = await call()
            if not self._stopping.is_set():
                return found
            if found and give_back is not None:
                await give_back(found)
            return []
        finally:
            self._idle.set()
