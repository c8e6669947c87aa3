"""A proxy in front of a server that cuts connections, or holds back what they carry."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Passes bytes on until it is armed, and then so many more of one direction; or, while it is
    closed, none at all, as a network does that has been parted."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.left: int | None = None
        self.upstream = True
        self._unanswered: bytes | None = None
        self.seen = {True: 0, False: 0}
        self._whole = asyncio.Event()
        self._whole.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str = "127.0.0.1") -> str:
        """Listen; the URL to connect to."""
        self._server = await asyncio.start_server(self._serve, host, 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self._url)
        user = f"{parts.username}@" if parts.username else ""
        return urlunsplit(parts._replace(netloc=f"{user}{host}:{port}"))

    async def stop(self) -> None:
        """Cut everything."""
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def arm(self, *, left: int, upstream: bool) -> None:
        """Cut after so many bytes to the server, or from it."""
        self.left, self.upstream = left, upstream

    def lose_answer(self, request: bytes) -> None:
        """Cut as soon as the server has answered the next `request`, and pass nothing of the answer on.
        What other connections carry meanwhile gets through: they may say something at any time."""
        self._unanswered = request

    def cut(self) -> None:
        """End all connections at once."""
        self.left = None
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def part(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._whole.clear()

    def mend(self) -> None:
        """What was held back gets through, and all that follows."""
        self._whole.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self._url)
        await self._whole.wait()
        try:
            there, back = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        asked = asyncio.Event()  # for what is not to be answered
        for source, sink, upstream in ((reader, back, True), (there, writer, False)):
            passing = self._pass_on(source, sink, asked, upstream=upstream)
            task = asyncio.ensure_future(passing)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        asked: asyncio.Event,
        *,
        upstream: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                self.seen[upstream] += len(data)
                await self._whole.wait()
                if upstream and self._unanswered is not None and self._unanswered in data:
                    self._unanswered = None
                    asked.set()
                if asked.is_set() and not upstream:
                    self.cut()
                    return
                if self.left is not None and upstream is self.upstream:
                    passed, self.left = data[: self.left], self.left - len(data)
                    sink.write(passed)
                    if self.left <= 0:
                        with suppress(OSError):
                            await sink.drain()
                        self.cut()
                        return
                else:
                    sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)
