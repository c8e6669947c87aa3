"""The contents of runs that engines of your own use: timers, entries, activities, snapshots, facts, and
idempotency keys."""

from __future__ import annotations

from datetime import datetime

from outlast.model.run_contents import Activity, Entry, Fact, Snapshot, Timer
from outlast.stores.postgres import rows
from outlast.stores.postgres.commit_contents import micros_or_none
from outlast.stores.postgres.rows import quote
from outlast.stores.postgres.session import SessionStore


class PostgresRunDetails(SessionStore):
    """Contents of runs besides their events."""

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        found = await self._session.read("load_timers", run_id, timeout=timeout)
        return [rows.to_timer(row) for row in found]

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        found = await self._session.read(
            "find_due_timers", *self._session.time, micros_or_none(now), limit, timeout=timeout
        )
        return [rows.to_timer(row) for row in found]

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        found = await self._session.read("load_entries", run_id, timeout=timeout)
        return [rows.to_entry(run_id, row) for row in found]

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        found = await self._session.read("load_activities", run_id, timeout=timeout)
        return [rows.to_activity(row) for row in found]

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        found = await self._session.read("find_activity", activity_id, timeout=timeout)
        return rows.to_activity(found[0]) if found else None

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        found = await self._session.read("find_snapshot", run_id, timeout=timeout)
        return rows.to_snapshot(found[0]) if found else None

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        return bool(await self._session.write("drop_snapshot", run_id, timeout=timeout))

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        found = await self._session.read("find_snapshot_ids", quote(after), limit, timeout=timeout)
        return [run_id for (run_id,) in found]

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        found = await self._session.read("find_fact", quote(root), quote(hash), timeout=timeout)
        return Fact(hash, found[0][0], root) if found else None

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        await self._session.write("put_fact", fact.hash, fact.data, timeout=timeout)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        return bool(await self._session.write("drop_fact", quote(hash), timeout=timeout))

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        while not await self._session.write(
            "remember_key", scope, key, quote(value), run_id, timeout=timeout
        ):
            bound = await self.recall(scope, key, timeout=timeout)
            if bound is not None:
                return bound
            # It was bound, and has been deleted since.
        return None

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        found = await self._session.read("recall_key", quote(scope), quote(key), timeout=timeout)
        return rows.unquote(found[0][0]) if found else None
