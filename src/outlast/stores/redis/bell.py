"""Bell: the pub/sub side of the doorbell, on connections of its own."""

from __future__ import annotations

from collections.abc import Callable

from outlast.stores.redis.session import Server


class Bell:
    """Publishes to, and listens on, the channel of a store."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def publish(self, name: bytes) -> None:
        """Ring elsewhere. A cluster spreads it to all its nodes."""
        channel = self._server.layout.channel.encode()
        await self._server.commands([(0, (b"PUBLISH", channel, name))], timeout=5, writes=False)

    async def listen(self, heard: Callable[[bytes], None]) -> None:
        """Call back at each ring, until this is cancelled or the connection breaks."""
        await self._server.subscribe(self._server.layout.channel.encode(), heard)
