"""RedisNotifier: wake-ups over pub/sub, so that a waiting process polls at once.

Pub/sub is a hint and no more: a message that is lost costs the time until the next poll. So nothing here raises, and
no connection is used before this process waits or sends a wake-up. A process that only writes and ends still sends its
wake-ups: `close` publishes those that are pending. `PubSubConnection` publishes and subscribes, on connections of its
own.
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
"""How long a process that closes may take to publish a wake-up."""

Publish = Callable[[bytes], Awaitable[None]]
Listen = Callable[[Callable[[bytes], None]], Awaitable[None]]
"""Calls back with an empty message once it is subscribed, and then with each message, until it is cancelled."""


class RedisNotifier(LocalNotifier):
    """Sends wake-ups in this process at once, and to other processes by a message with the name of its sender. One
    task, started when the store is opened, publishes the messages and, once a caller waits, receives those of other
    processes."""

    def __init__(self, publish: Publish, listen: Listen) -> None:
        super().__init__()
        self._publish = publish
        self._listen = listen
        self._name = os.urandom(8).hex()
        self._serving: asyncio.Task[None] | None = None
        self._called: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._pending_kinds = WakeupKind(0)
        self._pending_runs: frozenset[str] = frozenset()
        self._is_awaited = False
        self.is_listening = False

    def open(self) -> None:
        """Send wake-ups to other processes from now on."""
        if self._serving is None:
            self._pid = os.getpid()
            self._loop, self._called = asyncio.get_running_loop(), asyncio.Event()
            self._serving = self._loop.create_task(self._serve(self._called))

    def abandon(self) -> None:
        super().abandon()
        self._serving = self._called = self._loop = None
        self._is_awaited = self.is_listening = False

    async def close(self) -> None:
        """Stop listening, and publish what is pending. Wake-ups inside this process still work."""
        if self._pid != os.getpid():
            self.abandon()
            return
        serving, self._serving, self._called = self._serving, None, None
        if serving is not None:
            await _end(serving)
            if self._pending_kinds:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LAST_SECONDS):
                        await self._publish_pending()

    def wake(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        super().wake(kind, runs=runs)
        self._pending_kinds |= kind
        self._pending_runs = self._pending_runs.union(runs)
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
        subscription: asyncio.Task[None] | None = None
        try:
            while True:
                await called.wait()
                called.clear()
                if self._is_awaited and (subscription is None or subscription.done()):
                    subscription = asyncio.create_task(self._subscribe())
                # Wake-ups that come while one message is on its way need one more, not one each.
                if self._pending_kinds:
                    await self._publish_pending()
        finally:
            if subscription is not None:
                await _end(subscription)

    async def _publish_pending(self) -> None:
        """Publish what is pending. If that is cancelled, it stays pending: a wake-up that is sent twice does no harm."""
        kind, runs = self._pending_kinds, self._pending_runs
        self._pending_kinds, self._pending_runs = WakeupKind(0), frozenset()
        try:
            await self._publish(to_message(self._name, kind, runs).encode())
        except Exception as error:  # noqa: BLE001 - `wake` never fails, and the next one sends it again
            _logger.debug("a wake-up was not sent: %s", error)
        except asyncio.CancelledError:
            self._pending_kinds, self._pending_runs = (
                self._pending_kinds | kind,
                self._pending_runs | runs,
            )
            raise

    async def _subscribe(self) -> None:
        try:
            await self._listen(self._heard)
        except (OutlastError, RedisError, OSError) as error:
            # Waiters also poll.
            _logger.debug("the subscription to wake-ups ended: %s", error)
        finally:
            # The next caller that waits subscribes again; until then waiters poll more often.
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
    # redis-py loses a cancellation that arrives while it connects: cancel until the task ends.
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=0.05)


class PubSubConnection:
    """Publishes to, and listens on, the channel of a store."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def publish(self, name: bytes) -> None:
        """Publish a wake-up. A cluster spreads it to all its nodes."""
        channel = self._server.layout.channel.encode()
        await self._server.commands([(0, (b"PUBLISH", channel, name))], timeout=5, writes=False)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call back at each wake-up, until this is cancelled or the connection breaks."""
        await self._server.subscribe(self._server.layout.channel.encode(), heard)
