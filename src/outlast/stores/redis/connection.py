"""Links to Redis: send commands, read replies, and send nothing twice.

redis-py's clients retry a command when a connection breaks. A write that was sent may have happened, so a link
takes connections from the client's pool and uses them directly: a command is sent once, and the caller learns
whether anything was sent. Only replies that Redis gives before it acts are followed by a retry: "not here"
(MOVED, ASK, TRYAGAIN) and "unknown script" (NOSCRIPT, in session.py).
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    RedisClusterException,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import TimeoutError as SlowConnection

Command = tuple[bytes, ...]
REDIRECTS = 16
PAUSE_SECONDS = 0.05


class Request(NamedTuple):
    """A command, and a key of the slot that it belongs to."""

    route: bytes
    command: Command


class Attempt:
    """Whether anything of a call may have reached a server."""

    sent = False


class Link(ABC):
    """A connection to Redis, single or cluster."""

    @abstractmethod
    async def open(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """Close what the store has opened; not a client of the user."""

    @abstractmethod
    async def run(self, requests: Sequence[Request], attempt: Attempt) -> list[Any]:
        """The replies, in order; an error reply is a value."""

    @abstractmethod
    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        """The replies of each primary, for idempotent commands."""

    @abstractmethod
    async def subscribe(self, channel: bytes, heard: Callable[[bytes], None]) -> None:
        """Call back with each message on a channel, until this is cancelled."""


class SingleLink(Link):
    """One server, or the primary that Sentinel names."""

    def __init__(self, client: Redis, *, owned: bool, sentinels: Sequence[Redis] = ()) -> None:
        self._client = client
        self._owned = owned
        self._sentinels = sentinels

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        if self._owned:
            for client in (self._client, *self._sentinels):
                await client.aclose()
                await client.connection_pool.disconnect()

    async def run(self, requests: Sequence[Request], attempt: Attempt) -> list[Any]:
        pool: Any = self._client.connection_pool
        connection = await pool.get_connection()
        try:
            return await exchange(connection, [one.command for one in requests], attempt)
        finally:
            await pool.release(connection)

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        return [await self.run([Request(b"", command) for command in commands], Attempt())]

    async def subscribe(self, channel: bytes, heard: Callable[[bytes], None]) -> None:
        pool: Any = self._client.connection_pool
        connection = await pool.get_connection()
        try:
            await listen(connection, channel, heard)
        finally:
            await pool.release(connection)


class ClusterLink(Link):
    """A cluster: each request goes to the node that has its slot."""

    def __init__(self, client: RedisCluster, *, owned: bool) -> None:
        self._client = client
        self._owned = owned
        self._is_stale = False
        self._learning: asyncio.Future[None] | None = None

    async def open(self) -> None:
        await self._client.initialize()

    async def close(self) -> None:
        if self._learning is not None:
            await asyncio.wait([self._learning])
        if self._owned:
            await self._client.aclose()

    async def run(self, requests: Sequence[Request], attempt: Attempt) -> list[Any]:
        if self._is_stale:
            await self._learn()
        replies: list[Any] = [None] * len(requests)
        left = {n: self._node(request.route) for n, request in enumerate(requests)}
        asking: set[int] = set()
        for _ in range(REDIRECTS):
            await self._exchange(requests, left, asking, replies, attempt)
            left, asking = await self._redirected(left, replies)
            if not left:
                break
        return replies

    async def everywhere(self, commands: Sequence[Command]) -> list[list[Any]]:
        return [
            await self._on_node(node, commands, Attempt()) for node in self._client.get_primaries()
        ]

    async def subscribe(self, channel: bytes, heard: Callable[[bytes], None]) -> None:
        node = self._client.get_primaries()[0]
        connection = node.acquire_connection()
        try:
            await listen(connection, channel, heard)
        finally:
            node.release(connection)

    async def _exchange(
        self,
        requests: Sequence[Request],
        left: dict[int, Any],
        asking: set[int],
        replies: list[Any],
        attempt: Attempt,
    ) -> None:
        """Send each node its requests, all nodes in parallel."""
        by_node: dict[str, tuple[Any, list[int]]] = {}
        for n, node in left.items():
            by_node.setdefault(node.name, (node, []))[1].append(n)

        async def ask(node: Any, numbers: list[int]) -> None:
            commands: list[Command] = []
            for n in numbers:
                if n in asking:
                    commands.append((b"ASKING",))
                commands.append(requests[n].command)
            answers = iter(await self._on_node(node, commands, attempt))
            for n in numbers:
                if n in asking:
                    next(answers)
                replies[n] = next(answers)

        asked = [ask(node, numbers) for node, numbers in by_node.values()]
        if len(asked) == 1:
            await asked[0]
            return
        for error in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _on_node(self, node: Any, commands: Sequence[Command], attempt: Attempt) -> list[Any]:
        connection = node.acquire_connection()
        try:
            return await exchange(connection, commands, attempt)
        except (LostConnection, SlowConnection, OSError):
            self._is_stale = True  # perhaps another node has its slots by now
            raise
        finally:
            node.release(connection)

    async def _redirected(
        self, left: dict[int, Any], replies: list[Any]
    ) -> tuple[dict[int, Any], set[int]]:
        """The requests to repeat, and where. Redis has done none of them."""
        again: dict[int, Any] = {}
        asking: set[int] = set()
        pause = learn = False
        for n, node in left.items():
            reply = replies[n]
            if isinstance(reply, AskError):  # MovedError is one
                if isinstance(reply, MovedError):
                    learn = True
                else:
                    asking.add(n)
                again[n] = (reply.host, reply.port)
            elif isinstance(reply, TryAgainError):
                again[n], pause = node, True
            elif isinstance(reply, ClusterDownError):
                again[n], pause, learn = node, True, True
        if pause:
            await asyncio.sleep(PAUSE_SECONDS)
        if learn:
            await self._learn()
        for n, place in again.items():
            if isinstance(place, tuple):
                again[n] = self._client.get_node(*place) or left[n]
        return again, asking

    async def _learn(self) -> None:
        """Read the slot map: concurrent callers share one request, so that a cluster that lost a node is not
        flooded."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.ensure_future(self._client.nodes_manager.initialize())
        await asyncio.shield(self._learning)
        self._is_stale = False

    def _node(self, route: bytes) -> Any:
        try:
            node = self._client.get_node_from_key(route.decode())
        except RedisClusterException as error:
            self._is_stale = True
            raise LostConnection(f"no node serves this slot: {error}") from error
        if node is None:
            self._is_stale = True
            raise LostConnection("no node serves this slot")
        return node


async def exchange(connection: Any, commands: Sequence[Command], attempt: Attempt) -> list[Any]:
    """Send commands in one write and read their replies. After an incomplete exchange the connection is closed: the
    next user must not read a reply of this one."""
    is_whole = False
    try:
        await connection.connect()
        attempt.sent = True
        await connection.send_packed_command(packed(commands), check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response(disable_decoding=True))
            except ResponseError as error:
                replies.append(error)
        is_whole = True
        return replies
    finally:
        if not is_whole:
            await connection.disconnect(nowait=True)


def packed(commands: Sequence[Command]) -> bytes:
    """Commands in the Redis protocol."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        parts += [b"$%d\r\n%b\r\n" % (len(part), part) for part in command]
    return b"".join(parts)


async def listen(connection: Any, channel: bytes, heard: Callable[[bytes], None]) -> None:
    """Read messages from a connection, which is closed afterwards. An empty message comes first, when the server has
    confirmed the subscription."""
    try:
        await connection.connect()
        await connection.send_packed_command(
            connection.pack_commands([(b"SUBSCRIBE", channel)]), check_health=False
        )
        while True:
            reply = await connection.read_response(
                disable_decoding=True, timeout=math.inf, push_request=True
            )
            if isinstance(reply, list) and len(reply) == 3:
                if reply[0] == b"subscribe":
                    heard(b"")
                elif reply[0] == b"message":
                    heard(bytes(reply[2]))
    finally:
        await connection.disconnect(nowait=True)
