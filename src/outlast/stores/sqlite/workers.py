"""Heartbeats of workers: which processes are alive."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from outlast.model.claim import LISTED_FOR, Worker
from outlast.model.json import from_json, to_json
from outlast.model.times import from_micros, to_micros
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore

PUT_WORKER = query("put_worker")
FORGET_WORKERS = query("forget_workers")
FIND_WORKER = query("find_worker")
DELETE_WORKER = query("delete_worker")
LOAD_WORKERS = query("load_workers")


class SqliteWorkers(SessionStore):
    """Which workers are alive."""

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        await self._session.write(
            lambda db: _heartbeat(db, worker, ttl, self.clock.now()), timeout=timeout
        )

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        return await self._session.write(lambda db: _leave(db, owner), timeout=timeout)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        return await self._session.read(_load_workers, timeout=timeout, small=False)


def _heartbeat(connection: Connection, worker: Worker, ttl: float, now: datetime) -> None:
    values = {
        "owner": worker.owner,
        "now": to_micros(now),
        "until": to_micros(now + timedelta(seconds=ttl)),
        "data": to_json(worker),
    }
    connection.execute(PUT_WORKER, values)
    connection.execute(FORGET_WORKERS, (to_micros(now - LISTED_FOR),))


def _leave(connection: Connection, owner: str) -> bool:
    was_there = scalar(connection, FIND_WORKER, (owner,)) is not None
    connection.execute(DELETE_WORKER, (owner,))
    return was_there


def _load_workers(connection: Connection) -> list[Worker]:
    return [
        msgspec.structs.replace(
            from_json(data, Worker, where="the record of a worker"),
            started_at=from_micros(started_at),
            seen_at=from_micros(seen_at),
            until=from_micros(until),
        )
        for data, started_at, seen_at, until in connection.execute(LOAD_WORKERS).fetchall()
    ]
