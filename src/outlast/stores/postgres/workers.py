"""Heartbeats of workers: which processes are alive."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model.claim import LISTED_FOR, Worker
from outlast.model.json import from_json, to_json
from outlast.model.times import from_micros, to_micros
from outlast.stores.postgres.rows import Row
from outlast.stores.postgres.session import SessionStore


class PostgresWorkers(SessionStore):
    """Which workers are alive."""

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        now = await self._session.now(timeout=timeout)
        await self._session.write(
            "put_worker",
            worker.owner,
            to_micros(now),
            to_micros(now + timedelta(seconds=ttl)),
            to_micros(now - LISTED_FOR),
            to_json(worker),
            timeout=timeout,
        )

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        return bool(await self._session.write("delete_worker", owner, timeout=timeout))

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        return [_worker(row) for row in await self._session.read("load_workers", timeout=timeout)]


def _worker(row: Row) -> Worker:
    data, started_at, seen_at, until = row
    return msgspec.structs.replace(
        from_json(data, Worker, where="the record of a worker"),
        started_at=from_micros(started_at),
        seen_at=from_micros(seen_at),
        until=from_micros(until),
    )
