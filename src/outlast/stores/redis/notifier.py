"""A doorbell over pub/sub: whoever waits, in whatever process, looks at once.

Pub/sub is a hint and no more: a message that is lost costs the time until the next look. So nothing
here fails, and nothing is sent before somebody in this process has begun to listen or to ring.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress

from redis.exceptions import RedisError

from outlast.errors import OutlastError
from outlast.ports.clock import Clock
from outlast.ports.notifier import LocalNotifier

_logger = logging.getLogger(__name__)

Publish = Callable[[bytes], Awaitable[None]]
Listen = Callable[[Callable[[bytes], None]], Awaitable[None]]
"""Calls back with each message until it is cancelled."""


class RedisNotifier(LocalNotifier):
    """Rings here at once, and everywhere else by a message that says who rang."""

    def __init__(self, publish: Publish, listen: Listen) -> None:
        super().__init__()
        self._publish = publish
        self._listen = listen
        self._name = os.urandom(8).hex().encode()
        self._publishing: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._is_owed = False
        self._is_open = False

    def open(self) -> None:
        """From now on it rings elsewhere, too."""
        self._is_open = True

    async def close(self) -> None:
        """Stop listening. It still rings here."""
        self._is_open = False
        tasks = [task for task in (self._publishing, self._listening) if task is not None]
        self._publishing = self._listening = None
        for task in tasks:
            # redis-py loses a cancellation that comes while it connects: so until it is heard.
            while not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=0.05)

    def ring(self) -> None:
        super().ring()
        self._is_owed = True
        if self._is_open and (self._publishing is None or self._publishing.done()):
            with suppress(RuntimeError):  # no loop runs here: then nobody else hears it
                self._publishing = asyncio.get_running_loop().create_task(self._tell())

    async def wait(self, clock: Clock, seconds: float, *, since: int) -> bool:
        if self._is_open and (self._listening is None or self._listening.done()):
            self._listening = asyncio.get_running_loop().create_task(self._hear())
        return await super().wait(clock, seconds, since=since)

    async def _tell(self) -> None:
        # Rings that come while one message is on its way need one more, not one each.
        while self._is_owed:
            self._is_owed = False
            try:
                await self._publish(self._name)
            except (OutlastError, RedisError, OSError) as error:
                _logger.debug("nobody was told: %s", error)

    async def _hear(self) -> None:
        try:
            await self._listen(self._heard)
        except (OutlastError, RedisError, OSError) as error:
            # Whoever waits looks again after a while all the same, and then listens again.
            _logger.debug("nothing is heard: %s", error)

    def _heard(self, name: bytes) -> None:
        if name != self._name:
            super().ring()
