"""Heartbeats of workers: which processes are alive."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model.claim import LISTED_FOR, Worker
from outlast.stores.memory.tables import TableStore


class MemoryWorkers(TableStore):
    """Which workers are alive."""

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        now = self.clock.now()
        with self._locked() as tables:
            known = tables.workers.get(worker.owner)
            tables.workers[worker.owner] = msgspec.structs.replace(
                worker,
                started_at=now if known is None else known.started_at,
                seen_at=now,
                until=now + timedelta(seconds=ttl),
            )
            for one in list(tables.workers.values()):
                if one.until < now - LISTED_FOR:
                    del tables.workers[one.owner]

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        with self._locked() as tables:
            return tables.workers.pop(owner, None) is not None

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        with self._locked() as tables:
            known = list(tables.workers.values())
        return sorted(known, key=lambda one: (one.started_at, one.owner))
