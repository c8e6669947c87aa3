"""The store as a whole: counts of runs, and the heartbeats of workers."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import msgspec

from outlast.model.claim import LISTED_FOR, Worker
from outlast.model.run import Status
from outlast.stores.memory.tables import TableStore


class MemoryRegistry(TableStore):
    """Counts and workers."""

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        with self._locked() as tables:
            return Counter((life.run.workflow, life.run.status) for life in tables.lives.values())

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
