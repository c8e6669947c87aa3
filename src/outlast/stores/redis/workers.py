"""Heartbeats of workers: which processes are alive.

workers  HASH  owner → msgpack: when it started, was seen and expires, and its record. In partition 0
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model.claim import LISTED_FOR, Worker
from outlast.model.json import from_json, to_json
from outlast.model.times import from_micros, to_micros
from outlast.stores.redis.session_store import SessionStore

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(tuple[int, int, int, bytes]).decode


class RedisWorkers(SessionStore):
    """Which workers are alive."""

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        server = await self._session.server()
        now = await server.now(timeout=timeout)
        known = {one.owner: one for one in await self.workers(timeout=timeout)}
        mine = known.pop(worker.owner, None)
        started_at = now if mine is None else mine.started_at
        until = now + timedelta(seconds=ttl)
        word = _pack((*map(to_micros, (started_at, now, until)), to_json(worker)))
        key = server.layout.key(0, "workers")
        commands: list[tuple[int, tuple[bytes, ...]]] = [
            (0, (b"HSET", key, worker.owner.encode(), word))
        ]
        commands += [
            (0, (b"HDEL", key, one.owner.encode()))
            for one in known.values()
            if one.until < now - LISTED_FOR
        ]
        await server.commands(commands, timeout=timeout, writes=True)

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        server = await self._session.server()
        command = (b"HDEL", server.layout.key(0, "workers"), owner.encode())
        (gone,) = await server.commands([(0, command)], timeout=timeout, writes=True)
        return bool(gone)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        server = await self._session.server()
        command = (b"HVALS", server.layout.key(0, "workers"))
        (words,) = await server.commands([(0, command)], timeout=timeout, writes=False)
        return sorted(map(_worker, words), key=lambda one: (one.started_at, one.owner))


def _worker(word: bytes) -> Worker:
    started_at, seen_at, until, data = _unpack(word)
    return msgspec.structs.replace(
        from_json(data, Worker, where="the record of a worker"),
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
        until=from_micros(until),
    )
