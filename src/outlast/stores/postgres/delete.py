"""Deletion of runs, one by one and by retention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import Send
from outlast.model.times import to_micros
from outlast.stores.postgres.inbox import pack_sends
from outlast.stores.postgres.rows import (
    quote_or_none,
)
from outlast.stores.postgres.session import SessionStore


class PostgresDelete(SessionStore):
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
        seen = open_at or {}
        items, _, blobs = pack_sends(sends, (), ())
        ((gone, alive),) = await self._session.write(
            *("delete", *self._session.time, run_id, quote_or_none(uid), only_ended),
            *(list(seen), list(seen.values()), items, blobs),
            timeout=timeout,
        )
        if alive:
            raise RunsOpen(run_id, alive)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return bool(gone)

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        statuses = [one.value for one in status] if status else None
        found = await self._session.write(
            "expire", to_micros(before), statuses, limit, timeout=timeout
        )
        return sorted(id for (id,) in found)
