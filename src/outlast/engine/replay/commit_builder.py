"""Turn: what one activation of a run writes, as a pure function of its execution."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET, Raw, UnsetType

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.step import StepCall
from outlast.engine.operations.waits import HaltWait
from outlast.engine.replay.completion import cancels, failed_at, farewells
from outlast.engine.replay.error_text import storable
from outlast.engine.replay.execution import Execution, PendingCommit
from outlast.engine.replay.updates import kept_answers
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Creation
from outlast.model.event_data import to_event
from outlast.model.payloads import (
    Payload,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinued,
    WorkflowFailed,
    WorkflowStarted,
)
from outlast.model.queue_options import QueueOptions
from outlast.model.run import MISMATCH, Attribute, Change, Run, Status
from outlast.model.times import NOW


def next_wake(execution: Execution) -> datetime | None:
    """When the run has to be woken, if nothing comes before."""
    soonest: datetime | None = None
    for operation in execution.open.values():
        due = operation.due
        if due is not None and (soonest is None or due < soonest):
            soonest = due
    return soonest


def next_commit(
    execution: Execution,
    run: Run,
    claim: Claim,
    end: Payload | None,
    *,
    sequence: int,
    seen: int,
    rests: bool,
    paused: bool = False,
) -> Commit:
    """The commit that makes what was gathered durable, and the run's `end`, if it has come. With
    `rests` nothing is done for the run here any more: it is parked, and the claim is given back."""
    draft, execution.draft = execution.draft, PendingCommit()
    if isinstance(end, WorkflowContinued):
        end = None  # that is a commit of its own, and comes next
    sends = list(draft.sends)
    if end is not None:
        draft.events.append(to_event(end, run_id=run.id, timestamp=execution.now))
        sends += farewells(execution, run, end)
    digest = execution.digest
    digest.add(draft.events)
    snapshot = None
    if digest.is_due and end is None:
        snapshot = digest.snapshot(run, sequence + len(draft.events), execution.now)
    return Commit(
        run_id=run.id,
        uid=claim.uid or None,
        token=claim.token or None,
        expected=sequence,
        events=tuple(draft.events),
        change=_change(execution, run, draft, end, rests=rests, paused=paused),
        consumes=tuple(draft.consumes),
        seen=seen,
        release=rests,
        sends=tuple(sends),
        starts=tuple(draft.starts),
        tasks=tuple(draft.tasks),
        drops=tuple(draft.drops),
        facts=tuple(draft.facts),
        snapshot=snapshot,
    )


def begun(
    workflow: WorkflowDefinition,
    input: Raw,
    *,
    run_id: str,
    creation: Creation,
    attributes: dict[str, Attribute] | None = None,
    place: QueueOptions | None = None,
) -> Commit:
    """The commit that begins a run for whoever has its code."""
    run = Run(
        id=run_id,
        workflow=workflow.name,
        version=workflow.version,
        definition=workflow.hash,
        input=input,
        attributes=attributes or {},
        runnable_at=NOW,
    )
    started = WorkflowStarted(
        workflow_name=workflow.name,
        version=workflow.version,
        input=input,
        place=place,
        later=creation is Creation.REPLACE,
    )
    return Commit(
        run_id=run_id,
        create=run,
        creation=creation,
        force=creation is Creation.REPLACE,
        events=(to_event(started, run_id=run_id),),
    )


def continued(execution: Execution, run: Run, claim: Claim, end: WorkflowContinued) -> Commit:
    """The commit that ends this life and begins the next under the same id: what was sent and not
    yet taken goes along, and so does what was published or answered. Children that run on are asked
    to stop, except for those that are to outlive their parent."""
    draft, before = execution.draft, execution.started
    assert before is not None, "a run that has not begun cannot continue"
    history = (*execution.digest.events, *draft.events)
    started = WorkflowStarted(
        workflow_name=run.workflow,
        version=execution.workflow.version,
        input=end.input,
        origin=execution.origin,
        place=execution.place,
        later=True,
        parent_uid=before.parent_uid,
        answers=kept_answers(before, history),
    )
    fresh = Run(
        id=run.id,
        workflow=run.workflow,
        version=execution.workflow.version,
        definition=execution.workflow.hash,
        input=end.input,
        ctx={**run.ctx, **draft.published},
        parent=run.parent,
        attributes={**run.attributes, **draft.attributes},
        queue=run.queue,
        priority=run.priority,
        runnable_at=NOW,
    )
    return Commit(
        run_id=run.id,
        uid=claim.uid,
        token=claim.token,
        create=fresh,
        creation=Creation.REPLACE,
        carry_inbox=True,
        consumes=tuple(draft.consumes),
        starts=tuple(draft.starts),
        sends=(*draft.sends, *cancels(execution)),
        events=(to_event(started, run_id=run.id, timestamp=execution.now),),
    )


def parked(claim: Claim, sequence: int, reason: str, codes: Sequence[str]) -> Commit:
    """The commit that parks a run which cannot go on with any `codes` that are there: until it is resumed,
    or a worker has other code. What was sent to it waits."""
    change = Change(
        status=Status.HALTED, wait_kind=MISMATCH, error=storable(reason), runnable_at=None,
        rejected_by=" ".join(codes),
    )  # fmt: skip
    return _handed_back(claim, sequence, change)


def rejected(
    claim: Claim, sequence: int, reason: str, codes: Sequence[str], *, was: Run | None = None
) -> Commit:
    """The commit that leaves a run to workers whose code is none of `codes`; one that was parked meanwhile
    is again what it `was`."""
    change = Change(
        status=UNSET if was is None else was.status,
        wait_kind=UNSET if was is None else was.wait_kind,
        error=storable(reason),
        rejected_by=" ".join(codes),
        runnable_at=NOW,
    )
    return _handed_back(claim, sequence, change)


def _handed_back(claim: Claim, sequence: int, change: Change) -> Commit:
    return Commit(
        run_id=claim.run_id,
        uid=claim.uid,
        token=claim.token,
        expected=sequence,
        change=change,
        seen=2**62,
        release=True,
    )


def _change(
    execution: Execution,
    run: Run,
    draft: PendingCommit,
    end: Payload | None,
    *,
    rests: bool,
    paused: bool,
) -> Change:
    ctx = {**run.ctx, **draft.published} if draft.published else UNSET
    attributes = {**run.attributes, **draft.attributes} if draft.attributes else UNSET
    # A run that was parked for a mismatch, and goes on, has no error any more.
    mended = None if run.error is not None else UNSET
    match end:
        case WorkflowCompleted(output=output):
            return Change(
                status=Status.COMPLETED, result=output, error=mended, wait_kind=None,
                halt_data=None, ctx=ctx, attributes=attributes,
            )  # fmt: skip
        case WorkflowFailed(error=error):
            return Change(
                status=Status.FAILED, error=error, wait_kind=None, halt_data=None,
                recover_to=failed_at(execution), ctx=ctx, attributes=attributes,
            )  # fmt: skip
        case WorkflowCancelled(reason=reason):
            return Change(
                status=Status.CANCELLED, error=reason, wait_kind=None, halt_data=None,
                ctx=ctx, attributes=attributes,
            )  # fmt: skip
    current: str | UnsetType = UNSET
    halt: HaltWait | None = None
    for operation in execution.open.values():
        if isinstance(operation, StepCall):
            current = operation.key
        elif halt is None and isinstance(operation, HaltWait):
            halt = operation
    if not rests:
        status, kind = Status.RUNNING, None
    elif paused:
        status, kind = Status.PAUSED, None
    elif halt is not None:
        status, kind = Status.HALTED, "halt"
    else:
        status, kind = Status.WAITING, _wait_kind(execution)
    return Change(
        status=status,
        error=mended,
        wait_kind=kind,
        current_step=current,
        ctx=ctx,
        attributes=attributes,
        halt_data=halt.data if halt else (None if run.halt_data is not None else UNSET),
        recover_to=halt.key if halt else UNSET,
        runnable_at=UNSET if not rests else None if paused else next_wake(execution),
    )


def _wait_kind(execution: Execution) -> str | None:
    kinds = [op.wait_kind for op in execution.open.values() if op.wait_kind not in (None, "scope")]
    return kinds[0] if kinds else None
