"""A wake-up channel over pub/sub: whoever waits, in whatever process, looks at once.

Pub/sub is a hint and no more: a message that is lost costs the time until the next look. So nothing
here fails, and nothing is sent before somebody in this process has begun to listen or to send a wake-up. A process
that only sends something and ends still sends a wake-up: what it owes is passed on as it closes.

PubSubConnection: the pub/sub side of the wake-up channel, on connections of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from redis.exceptions import RedisError

from outlast.errors import OutlastError
from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock
from outlast.ports.notifier import LocalNotifier, from_message, to_message
from outlast.stores.redis.session import Server

_logger = logging.getLogger(__name__)

LAST_SECONDS = 2.0
"""How long a process that closes may take to pass a wake-up on."""

Publish = Callable[[bytes], Awaitable[None]]
Listen = Callable[[Callable[[bytes], None]], Awaitable[None]]
"""Calls back with an empty message when it hears, and then with each message, until it is cancelled."""


class RedisNotifier(LocalNotifier):
    """Sends wake-ups here at once, and everywhere else by a message that says who sent it. One task, begun when
    the store is opened, sends the messages and, once somebody waits, hears those of others."""

    def __init__(self, publish: Publish, listen: Listen) -> None:
        super().__init__()
        self._publish = publish
        self._listen = listen
        self._name = os.urandom(8).hex()
        self._serving: asyncio.Task[None] | None = None
        self._called: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._owed = WakeupKind(0)
        self._runs: frozenset[str] = frozenset()
        self._is_awaited = False
        self.is_listening = False

    def open(self) -> None:
        """From now on it sends a wake-up elsewhere, too."""
        if self._serving is None:
            self._pid = os.getpid()
            self._loop, self._called = asyncio.get_running_loop(), asyncio.Event()
            self._serving = self._loop.create_task(self._serve(self._called))

    def abandon(self) -> None:
        super().abandon()
        self._serving = self._called = self._loop = None
        self._is_awaited = self.is_listening = False

    async def close(self) -> None:
        """Stop listening, and pass on what is owed. It still sends a wake-up here."""
        if self._pid != os.getpid():
            self.abandon()
            return
        serving, self._serving, self._called = self._serving, None, None
        if serving is not None:
            await _end(serving)
            if self._owed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_SECONDS):
                        await self._tell()

    def wake(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        super().wake(kind, runs=runs)
        self._owed |= kind
        self._runs = self._runs.union(runs)
        self._call()

    async def wait(
        self, clock: Clock, seconds: float, *, since: int, kind: WakeupKind | None = None
    ) -> bool:
        if not self._is_awaited:
            self._is_awaited = True
            self._call()
        return await super().wait(clock, seconds, since=since, kind=kind)

    def _call(self) -> None:
        called, loop = self._called, self._loop
        if called is not None and loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(called.set)

    async def _serve(self, called: asyncio.Event) -> None:
        hearing: asyncio.Task[None] | None = None
        try:
            while True:
                await called.wait()
                called.clear()
                if self._is_awaited and (hearing is None or hearing.done()):
                    hearing = asyncio.create_task(self._hear())
                # Wake-ups that come while one message is on its way need one more, not one each.
                if self._owed:
                    await self._tell()
        finally:
            if hearing is not None:
                await _end(hearing)

    async def _tell(self) -> None:
        """Pass on what is owed. If that is cut off, it is owed still: twice does no harm."""
        kind, runs = self._owed, self._runs
        self._owed, self._runs = WakeupKind(0), frozenset()
        try:
            await self._publish(to_message(self._name, kind, runs).encode())
        except Exception as error:  # noqa: BLE001 - `wake` never fails, and the next one sends it again
            _logger.debug("a wake-up was not sent: %s", error)
        except asyncio.CancelledError:
            self._owed, self._runs = self._owed | kind, self._runs | runs
            raise

    async def _hear(self) -> None:
        try:
            await self._listen(self._heard)
        except (OutlastError, RedisError, OSError) as error:
            # Waiters also poll.
            _logger.debug("nothing is heard: %s", error)
        finally:
            # The next one who waits listens again, and looks more often until then.
            self._is_awaited = self.is_listening = False

    def _heard(self, message: bytes) -> None:
        if not message:
            self.is_listening = True
            self.wake_local()  # for wake-ups that were missed
            return
        name, kind, runs = from_message(message.decode())
        if name != self._name:
            self.wake_local(kind, runs=runs)


async def _end(task: asyncio.Task[None]) -> None:
    # redis-py loses a cancellation that comes while it connects: so until it is heard.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)


class PubSubConnection:
    """Publishes to, and listens on, the channel of a store."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def publish(self, name: bytes) -> None:
        """Send a wake-up elsewhere. A cluster spreads it to all its nodes."""
        channel = self._server.layout.channel.encode()
        await self._server.commands([(0, (b"PUBLISH", channel, name))], timeout=5, writes=False)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call back at each wake-up, until this is cancelled or the connection breaks."""
        await self._server.subscribe(self._server.layout.channel.encode(), heard)
