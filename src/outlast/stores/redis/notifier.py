"""A wake-up channel over pub/sub: whoever waits, in whatever process, looks at once.

Pub/sub is a hint and no more: a message that is lost costs the time until the next look. So nothing
here fails, and nothing is sent before somebody in this process has begun to listen or to send a wake-up. A process
that only sends something and ends still sends a wake-up: what it owes is passed on as it closes.

PubSubConnection: the pub/sub side of the wake-up channel, on connections of its own.

The outbox: messages from one partition to another.

A commit, send or deletion that concerns another partition puts an entry into its own outbox, in the same script.
The writer carries it over at once; if that fails, the next process that looks for work does. Entries from one
partition to another are carried in order, and the receiving script records the last number: delivery is exactly
once.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct
from redis.exceptions import RedisError

from outlast.errors import OutlastError
from outlast.model.commit_rules import WakeupKind
from outlast.ports.clock import Clock
from outlast.ports.notifier import LocalNotifier, from_message, to_message
from outlast.stores.redis.concurrency_slots import carry_releases_soon
from outlast.stores.redis.keys import CLAIM_INDEXES, of_run
from outlast.stores.redis.packing import pack
from outlast.stores.redis.session import Call, Server
from outlast.stores.redis.unpacking import pairs

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


class _Item(Struct):
    run: str
    id: str


class _NewRun(Struct):
    id: str


class _Child(Struct):
    new_run: _NewRun


class Entry(Struct):
    """The fields of an outbox entry that a carrier needs."""

    to: int
    kind: str
    send: _Item | None = None
    start: _Child | None = None
    name: str = ""


_entry = msgspec.msgpack.Decoder(Entry)


async def relay(
    server: Server, sources: Collection[int], reached: set[str], *, timeout: float | None
) -> dict[str, list[Any]]:
    """Carry the entries of these partitions; the outcomes of items, by their ids. The runs that got an item are added
    to `reached`, also if this fails later."""
    answers: dict[str, list[Any]] = {}
    await carry_releases_soon(server, sources, timeout=timeout)
    for source in sources:
        key = server.layout.key(source, "outbox")
        (reply,) = await server.commands(
            [(source, (b"HGETALL", key))], timeout=timeout, writes=False
        )
        blocked: set[int] = set()
        for number, packed in sorted(pairs(reply).items(), key=lambda pair: int(pair[0])):
            entry = _entry.decode(packed)
            if entry.to in blocked:
                continue
            answer = await _carry(server, source, number, packed, entry, timeout)
            if answer is None:
                blocked.add(entry.to)  # what comes after it must not overtake it
                continue
            if entry.send is not None:
                answers[entry.send.id] = answer
                reached.add(entry.send.run)
            await server.commands([(source, (b"HDEL", key, number))], timeout=timeout, writes=True)
    return answers


async def waiting(server: Server, *, timeout: float | None) -> list[int]:
    """The partitions whose outbox has entries."""
    layout = server.layout
    if layout.partitions == 1:
        return []
    commands = [
        (part, (b"EXISTS", layout.key(part, "outbox"), layout.key(part, "slot:returns")))
        for part in range(layout.partitions)
    ]
    found = await server.commands(commands, timeout=timeout, writes=False)
    return [part for part, has_some in enumerate(found) if has_some]


async def _carry(
    server: Server, source: int, number: bytes, packed: bytes, entry: Entry, timeout: float | None
) -> list[Any] | None:
    request = pack({"source": str(source), "number": number.decode()})
    call = Call("receive_entry", entry.to, ["relayed", *_names(entry)], [request, packed])
    (answer,) = await server.calls([call], timeout=timeout)
    if isinstance(answer, Exception):
        return None
    return list(answer[1]) if answer[0] == b"done" else [b"again"]


def _names(entry: Entry) -> list[str]:
    if entry.send is not None:
        return [
            *(of_run(entry.send.run, what) for what in ("state", "inbox", "items")),
            *CLAIM_INDEXES,
        ]
    if entry.start is not None:
        return [of_run(entry.start.new_run.id, "state")]
    return [entry.name]
