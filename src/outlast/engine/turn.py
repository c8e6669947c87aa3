"""Turn: what one activation of a run writes, as a pure function of its execution."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from outlast.engine.execution import Execution
from outlast.engine.operations import TimerWait
from outlast.model.claim import Claim
from outlast.model.commit import Commit
from outlast.model.event import Event
from outlast.model.payloads import WorkflowCompleted, WorkflowFailed
from outlast.model.run import Change, Status


def next_commit(
    execution: Execution, events: Sequence[Event], claim: Claim, sequence: int
) -> Commit:
    """The commit that makes `events` durable on top of `sequence`. If nothing is being done for
    the run here any more, it parks the run and gives the claim back."""
    rests = not any(operation.busy for operation in execution.open.values())
    return Commit(
        run_id=claim.run_id,
        uid=claim.uid,
        token=claim.token,
        expected=sequence,
        events=tuple(events),
        change=_change(execution, rests),
        release=rests,
    )


def next_wake(execution: Execution) -> datetime | None:
    """When the earliest of the run's timers is due."""
    timers = [op.fire_at for op in execution.open.values() if isinstance(op, TimerWait)]
    return min(timers, default=None)


def _change(execution: Execution, rests: bool) -> Change:
    match execution.outcome():
        case WorkflowCompleted(output=output):
            return Change(status=Status.COMPLETED, result=output, wait_kind=None)
        case WorkflowFailed(error=error):
            return Change(status=Status.FAILED, error=error, wait_kind=None)
    if not rests:
        return Change(status=Status.RUNNING, wait_kind=None, current_step=execution.last_started)
    return Change(
        status=Status.WAITING,
        wait_kind="timer",
        current_step=execution.last_started,
        runnable_at=next_wake(execution),
    )
