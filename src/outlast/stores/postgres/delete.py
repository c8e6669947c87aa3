"""Deletion of runs, one by one and by retention.

What a move of runs to another store needs: the contents of a run, and tokens above those of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.errors import RunsOpen
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Status
from outlast.model.run_contents import BoundKey, RunContents, Send
from outlast.model.times import to_micros
from outlast.stores.postgres.inbox import pack_sends
from outlast.stores.postgres.rows import (
    Row,
    quote_or_none,
    to_dead_task,
    to_holding,
    to_task,
    unquote,
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


class PostgresTransfer(SessionStore):
    """The contents of a run that a commit does not read back."""

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:

        async def rows(name: str) -> list[Row]:
            return await self._session.read(name, run_id, timeout=timeout)

        tasks = await rows("load_tasks_of_run")
        return RunContents(
            receipts=tuple(unquote(id) for (id,) in await rows("load_receipts")),
            tasks=tuple(map(to_task, tasks)),
            holdings=tuple(filter(None, map(to_holding, tasks))),
            dead=tuple(map(to_dead_task, await rows("load_dead_tasks_of_run"))),
            keys=tuple(BoundKey(*map(unquote, row)) for row in await rows("load_keys_of_run")),
            facts=tuple(unquote(hash) for (hash,) in await rows("load_facts_of_root")),
        )

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        await self._session.write("skip_tokens", above, timeout=timeout)
