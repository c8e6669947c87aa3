"""Tasks of runs, as the store hands them out; the queue port is in queue.py."""

from __future__ import annotations

from datetime import datetime, timedelta

from outlast.model.claim import Claim
from outlast.model.run_contents import Delivery, Task
from outlast.stores.postgres.rows import Row, moment, quote_or_none, to_task
from outlast.stores.postgres.session import SessionStore


class PostgresTasks(SessionStore):
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
        await self._session.register_owner(owner)
        span = None if ttl is None else round(ttl * 1_000_000)
        found = await self._session.write(
            "claim_task", *self._session.time, run_id, task_id, owner, span, timeout=timeout
        )
        if not found:
            return None
        claimed_at = await self._session.now(timeout=timeout) if span is None else None
        return _claim_on(to_task(found[0]), found[0], span, claimed_at)

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        found = await self._session.read(
            "find_available_tasks",
            *self._session.time,
            quote_or_none(queue),
            limit,
            timeout=timeout,
        )
        return [to_task(row) for row in found]


def to_delivery(row: Row, span: int) -> Delivery:
    """The delivery of a row of `tasks` that was just taken for `span` microseconds."""
    task = to_task(row)
    return Delivery(task, _claim_on(task, row, span, None))


def _claim_on(task: Task, row: Row, span: int | None, claimed_at: datetime | None) -> Claim:
    token, owner, claimed_until = tuple(row)[17:20]
    until = moment(claimed_until)
    if until is not None and span is not None:
        claimed_at = until - timedelta(microseconds=span)
    assert claimed_at is not None, "a claim without a lease has the time at which it was taken"
    return Claim(
        owner=owner,
        token=token,
        claimed_at=claimed_at,
        expires_at=until,
        run_id=task.run_id,
        uid=task.uid,
        task_id=task.id,
        queue=task.queue,
    )
