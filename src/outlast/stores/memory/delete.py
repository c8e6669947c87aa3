"""Deletion of runs, one by one and by retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen
from outlast.model.commit_rules import WakeupKind
from outlast.model.ids import SEPARATOR
from outlast.model.run import Run, Status
from outlast.model.run_contents import (
    Send,
)
from outlast.stores.memory.commit import deliver
from outlast.stores.memory.tables import Tables, TableStore


class MemoryDelete(TableStore):
    """Deletes runs with their descendants and contents."""

    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        with self._locked() as tables:
            life = tables.lives.get(run_id)
            if uid is not None and (life is None or life.run.uid != uid):
                return False
            if only_ended:
                root = [] if life is None or life.run.is_over else [run_id]
                seen = open_at or {}
                others = [
                    id
                    for id in root + tables.open_below(run_id)
                    if seen.get(id, "unseen") not in (tables.lives[id].run.commit_id, None)
                ]
                if others:
                    raise RunsOpen(run_id, sorted(others))
            was_there = tables.forget(run_id)
            now = self.clock.now()
            for send in sends:
                deliver(tables, send, now)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return was_there

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        with self._locked() as tables:
            ended = [
                (life.run.ended_at, id)
                for id, life in tables.lives.items()
                if _expired(tables, life.run, before) and (not status or life.run.status in status)
            ]
            gone = sorted(id for _, id in sorted(ended)[:limit])
            for id in gone:
                tables.forget(id)
        return gone


def _expired(tables: Tables, run: Run, before: datetime) -> bool:
    if run.ended_at is None or run.ended_at >= before or SEPARATOR in run.id:
        return False
    parent = None if run.parent is None else tables.lives.get(run.parent)
    if not run.is_over or (parent is not None and not parent.run.is_over):
        return False
    below = run.id + SEPARATOR
    return all(life.run.is_over for id, life in tables.lives.items() if id.startswith(below))
