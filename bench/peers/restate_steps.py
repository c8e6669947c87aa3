"""Ten steps in Restate, see bench/peers/_clock.py: what calls its server, as a client over HTTP. The
server and the handler (bench/peers/restate_handler.py) are processes of their own, so that Restate has
three where the others have one. PLACE is `HOST:PORT` of the server's ingress. Only the standard library
is needed; connections are kept."""

from __future__ import annotations

import asyncio
import json
import sys

from bench.peers._clock import race

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
idle: list[Connection] = []
SETTINGS = "its own log, fsync of the WAL, one replica"


async def once() -> int:
    """One workflow."""
    return int(json.loads(await call(sys.argv[1], "/Ten/ten_steps", b"1")))


async def call(place: str, path: str, body: bytes) -> bytes:
    """The answer to a POST of JSON."""
    host, port = place.split(":")
    reader, writer = idle.pop() if idle else await asyncio.open_connection(host, int(port))
    head = f"POST {path} HTTP/1.1\r\nhost: {place}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    status = await reader.readline()
    length = 0
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        if name.lower() == "content-length":
            length = int(value)
    answer = await reader.readexactly(length)
    if b" 20" not in status:
        raise AssertionError(f"{status!r} {answer!r}")
    idle.append((reader, writer))
    return answer


if __name__ == "__main__":
    asyncio.run(race(once, SETTINGS))
