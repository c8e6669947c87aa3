"""Tasks of runs, as the store hands them out; the queue port is in queue.py."""

from __future__ import annotations

from outlast.model.claim import Claim
from outlast.model.run_contents import (
    Task,
)
from outlast.stores.memory.tables import TableStore, private


class MemoryTasks(TableStore):
    """Claims on single tasks, and what is available."""

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        now = self.clock.now()
        with self._locked() as tables:
            for (_, of_run, id), queued in tables.tasks.items():
                if (of_run, id) == (run_id, task_id) and queued.available(now):
                    return tables.lease(queued, owner, ttl, now)
        return None

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        now = self.clock.now()
        with self._locked() as tables:
            ready = [
                queued
                for queued in tables.tasks.values()
                if queued.available(now) and queue in (None, queued.task.queue)
            ]
        ready.sort(key=lambda queued: (queued.task.priority, queued.ready_at, queued.order))
        return [private(queued.task) for queued in ready[:limit]]
