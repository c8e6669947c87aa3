"""Contents of a run besides its events: timers, entries, activities, a snapshot, facts, keys."""

from __future__ import annotations

from datetime import datetime

from outlast.model.run_contents import (
    Activity,
    Entry,
    Fact,
    Snapshot,
    Timer,
)
from outlast.stores.memory.tables import TableStore


class MemoryRunDetails(TableStore):
    """Contents of runs besides their events."""

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        with self._life(run_id) as life:
            timers = [] if life is None else list(life.timers.values())
        return sorted(timers, key=lambda timer: (timer.fire_at, timer.id))

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        moment = now or self.clock.now()
        with self._locked() as tables:
            due = [
                timer
                for life in tables.lives.values()
                for timer in life.timers.values()
                if not timer.fired and timer.fire_at <= moment
            ]
        return sorted(due, key=lambda timer: (timer.fire_at, timer.run_id, timer.id))[:limit]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        with self._life(run_id) as life:
            return [] if life is None else sorted(life.entries, key=lambda entry: entry.timestamp)

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        with self._life(run_id) as life:
            return [] if life is None else [life.activities[id] for id in sorted(life.activities)]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        with self._locked() as tables:
            for life in tables.lives.values():
                if activity_id in life.activities:
                    return life.activities[activity_id]
        return None

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        with self._life(run_id) as life:
            return None if life is None else life.snapshot

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        with self._life(run_id) as life:
            if life is None or life.snapshot is None:
                return False
            life.snapshot = None
            return True

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        with self._locked() as tables:
            ids = [id for id, life in tables.lives.items() if life.snapshot and id > after]
        return sorted(ids)[:limit]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        with self._locked() as tables:
            return tables.facts.get((root, hash))

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        with self._locked() as tables:
            tables.facts["", fact.hash] = Fact(fact.hash, fact.data)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        with self._locked() as tables:
            return tables.facts.pop(("", hash), None) is not None

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        with self._locked() as tables:
            bound = tables.keys.get((scope, key))
            if bound is None:
                tables.keys[scope, key] = (value, run_id)
            return None if bound is None else bound[0]

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        with self._locked() as tables:
            bound = tables.keys.get((scope, key))
            return None if bound is None else bound[0]
