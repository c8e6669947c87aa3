"""Claims on tasks, as rows tell them."""

from __future__ import annotations

from datetime import datetime, timedelta

from outlast.model.claim import Claim
from outlast.model.task import Delivery, Task
from outlast.stores.postgres.rows import Row, moment, to_task


def claim_of(row: Row, span: int | None, claimed_at: datetime | None = None) -> Claim:
    """The claim on a row of `tasks` that was just taken for `span` microseconds, or for good."""
    return _claim_on(to_task(row), row, span, claimed_at)


def delivery_of(row: Row, span: int) -> Delivery:
    """The same, with the task."""
    task = to_task(row)
    return Delivery(task, _claim_on(task, row, span, None))


def _claim_on(task: Task, row: Row, span: int | None, claimed_at: datetime | None) -> Claim:
    token, owner, claimed_until = tuple(row)[17:20]
    until = moment(claimed_until)
    if until is not None and span is not None:
        claimed_at = until - timedelta(microseconds=span)
    assert claimed_at is not None, "a claim without a lease says when it was taken"
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
