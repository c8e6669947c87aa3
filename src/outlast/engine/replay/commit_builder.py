"""Builds the commits of a run, as pure functions of its execution: the commit of a turn, the start of a run, the start of
its next life, and the commits that give a run back to other workers. `NewRun` is the run that a start creates, with its
ticket if it waits in a queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.ask import AskWait
from outlast.engine.operations.step import StepCall
from outlast.engine.replay.completion import child_cancellations, failed_key, final_sends
from outlast.engine.replay.error_text import storable
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import PendingCommit
from outlast.engine.replay.updates import answers_to_keep
from outlast.model.asks import ASKING, with_asks, without_asks
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Creation
from outlast.model.event import EventType, to_event
from outlast.model.payloads import (
    Payload,
    WorkflowCancelled,
    WorkflowCompleted,
    WorkflowContinued,
    WorkflowFailed,
    WorkflowStarted,
)
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import MISMATCH, Attribute, Change, Run, Status, WaitKind
from outlast.model.run_contents import Item, Send, Task
from outlast.model.times import NOW


def next_wake(execution: Execution) -> datetime | None:
    """When the run has to be woken if no message arrives before."""
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
    """The commit of a turn: the pending changes, and the run's `end` if it has ended. With `rests` this process has
    nothing to do for the run: the commit parks it and releases the claim."""
    pending, execution.pending = execution.pending, PendingCommit()
    if isinstance(end, WorkflowContinued):
        end = None  # the next commit starts the next life
    sends = list(pending.sends)
    if end is not None:
        pending.events.append(to_event(end, run_id=run.id, timestamp=execution.now))
        sends += final_sends(execution, run, end)
    replay_log = execution.replay_log
    replay_log.add(pending.events)
    snapshot = None
    if replay_log.is_due and end is None:
        snapshot = replay_log.snapshot(run, sequence + len(pending.events), execution.now)
    return Commit(
        run_id=run.id,
        uid=claim.uid or None,
        token=claim.token or None,
        expected=sequence,
        events=tuple(pending.events),
        change=_change(execution, run, pending, end, sequence=sequence, rests=rests, paused=paused),
        consumes=tuple(pending.consumes),
        seen=seen,
        release=rests,
        sends=tuple(sends),
        starts=tuple(pending.starts),
        tasks=tuple(pending.tasks),
        drops=tuple(pending.drops),
        facts=tuple(pending.facts),
        snapshot=snapshot,
    )


def continue_commit(execution: Execution, run: Run, claim: Claim, end: WorkflowContinued) -> Commit:
    """The commit that ends this life and starts the next under the same id. The next life inherits unread messages,
    published values and answers. Running children are cancelled, except those that outlive their parent."""
    pending, before = execution.pending, execution.started
    assert before is not None, "a run that has not started cannot continue"
    history = (*execution.replay_log.events, *pending.events)
    started = WorkflowStarted(
        workflow_name=run.workflow,
        version=execution.workflow.version,
        input=end.input,
        origin=execution.origin,
        place=execution.queue_options,
        later=True,
        parent_uid=before.parent_uid,
        answers=answers_to_keep(before, history),
    )
    fresh = Run(
        id=run.id,
        workflow=run.workflow,
        version=execution.workflow.version,
        definition=execution.workflow.hash,
        input=end.input,
        ctx={**run.ctx, **pending.published},
        parent=run.parent,
        attributes=without_asks({**run.attributes, **pending.attributes}),
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
        consumes=tuple(pending.consumes),
        starts=tuple(pending.starts),
        sends=(*pending.sends, *child_cancellations(execution)),
        events=(to_event(started, run_id=run.id, timestamp=execution.now),),
    )


def park_commit(
    claim: Claim, sequence: int, reason: str, codes: Sequence[str], kind: str = MISMATCH
) -> Commit:
    """The commit that parks a run which none of `codes` can continue, until it is resumed or a worker has other code.
    Its messages wait in the inbox."""
    change = Change(
        status=Status.HALTED, wait_kind=kind, error=storable(reason), runnable_at=None,
        rejected_by=" ".join(codes),
    )  # fmt: skip
    return _release_commit(claim, sequence, change)


def reject_commit(
    claim: Claim, sequence: int, reason: str, codes: Sequence[str], *, was: Run | None = None
) -> Commit:
    """The commit that leaves a run to workers whose code is none of `codes`. A run that was parked meanwhile gets the
    status that it `was` in."""
    change = Change(
        status=UNSET if was is None else was.status,
        wait_kind=UNSET if was is None else was.wait_kind,
        error=storable(reason),
        rejected_by=" ".join(codes),
        runnable_at=NOW,
    )
    return _release_commit(claim, sequence, change)


def _release_commit(claim: Claim, sequence: int, change: Change) -> Commit:
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
    pending: PendingCommit,
    end: Payload | None,
    *,
    sequence: int,
    rests: bool,
    paused: bool,
) -> Change:
    ctx = {**run.ctx, **pending.published} if pending.published else UNSET
    current: str | UnsetType = UNSET
    asks: list[AskWait] = []
    for operation in execution.open.values():
        if isinstance(operation, StepCall):
            current = operation.key
        elif isinstance(operation, AskWait):
            asks.append(operation)
    attributes: dict[str, Attribute] | UnsetType = UNSET
    if pending.attributes or asks or ASKING in run.attributes:
        attributes = _attributes(run, pending, [] if end is not None else asks, sequence)
    # A run that continues after it was parked for a mismatch has no error any more.
    cleared = None if run.error is not None else UNSET
    match end:
        case WorkflowCompleted(output=output):
            return Change(
                status=Status.COMPLETED, result=output, error=cleared, wait_kind=None,
                halt_data=None, ctx=ctx, attributes=attributes,
            )  # fmt: skip
        case WorkflowFailed(error=error):
            return Change(
                status=Status.FAILED, error=error, wait_kind=None, halt_data=None,
                recover_to=failed_key(execution), ctx=ctx, attributes=attributes,
            )  # fmt: skip
        case WorkflowCancelled(reason=reason):
            return Change(
                status=Status.CANCELLED, error=reason, wait_kind=None, halt_data=None,
                ctx=ctx, attributes=attributes,
            )  # fmt: skip
    halt = asks[0] if asks else None
    if not rests:
        status, kind = Status.RUNNING, None
    elif paused:
        status, kind = Status.PAUSED, None
    elif halt is not None:
        status, kind = Status.HALTED, WaitKind.HALT.value
    else:
        status, kind = Status.WAITING, _wait_kind(execution)
    return Change(
        status=status,
        error=cleared,
        wait_kind=kind,
        current_step=current,
        ctx=ctx,
        attributes=attributes,
        halt_data=halt.data if halt else (None if run.halt_data is not None else UNSET),
        recover_to=halt.key if halt else UNSET,
        runnable_at=UNSET if not rests else None if paused else next_wake(execution),
    )


def _attributes(
    run: Run, pending: PendingCommit, asks: Sequence[AskWait], sequence: int
) -> dict[str, Attribute] | UnsetType:
    """The attributes of the run with its open questions, if that changes them. A question that this commit asks gets
    the sequence of its event."""
    new = {ask.key: ask for ask in asks if not ask.sequence}
    if new:
        for number, event in enumerate(pending.events, sequence + 1):
            if event.type == EventType.HALT_STARTED and event.step_name in new:
                new[event.step_name].sequence = number
    attributes = {**run.attributes, **pending.attributes}
    if asks or ASKING in attributes:
        attributes = with_asks(attributes, [ask.as_open() for ask in asks])
    # Values that the code sets are always written: 1 and True are equal, and different attributes.
    return attributes if pending.attributes or attributes != run.attributes else UNSET


def _wait_kind(execution: Execution) -> str | None:
    for operation in execution.open.values():
        kind = operation.wait_kind
        if kind is not None and kind is not WaitKind.SCOPE:
            return kind.value  # plain text, which drivers bind fastest
    return None


QUEUED = WaitKind.QUEUE.value
"""The `wait_kind` of a run that waits for its admission."""
TICKET = "ticket"


class NewRun(Struct, frozen=True, kw_only=True):
    """What the record and the first event of a new run say. Without `definition` only the worker that
    claims the run has its code."""

    id: str
    workflow: str
    definition: WorkflowDefinition | None
    input: Raw
    creation: Creation = Creation.NEW
    attributes: dict[str, Attribute] = {}
    queue: QueueOptions | None = None
    signal: Item | None = None

    @property
    def sends(self) -> tuple[Send, ...]:
        """The signal that the run starts with, as part of the commit that creates it."""
        return () if self.signal is None else (Send(run_id=self.id, item=self.signal),)

    @property
    def version(self) -> int | str:
        """The version of the code that is here."""
        return "" if self.definition is None else self.definition.version

    def record(self, status: Status = Status.PENDING) -> Run:
        """The run's record."""
        return Run(
            id=self.id,
            workflow=self.workflow,
            version=self.version,
            definition="" if self.definition is None else self.definition.hash,
            input=self.input,
            status=status,
            attributes=self.attributes,
            runnable_at=NOW,
        )

    def started(self) -> WorkflowStarted:
        """The run's first event."""
        return WorkflowStarted(
            workflow_name=self.workflow,
            version=self.version,
            input=self.input,
            place=self.queue,
            later=self.creation is Creation.REPLACE,
        )

    def commit(self) -> Commit:
        """The commit that creates the run for any worker that has its code, or puts it into its queue."""
        commit = Commit(
            run_id=self.id,
            create=self.record(),
            creation=self.creation,
            force=self.creation is Creation.REPLACE,
            events=(to_event(self.started(), run_id=self.id),),
            sends=self.sends,
        )
        return commit if self.queue is None else queued(commit, self.queue)


def ticket_queue(queue: str, workflow: str) -> str:
    """The queue in which the tickets of a workflow wait. Each workflow has its own, so that a worker only admits runs
    whose code it has."""
    return f"{queue}/@{workflow}"


def ticket_of(run: Run, place: QueueOptions) -> Task:
    """The task that represents a run in a queue. `turn` distinguishes the tickets that one run gets."""
    return Task(
        metadata={"turn": str(run.revision)},
        id=TICKET,
        queue=ticket_queue(place.queue, run.workflow),
        kind="run",
        name=run.workflow,
        run_id=run.id,
        uid=run.uid,
        priority=place.priority,
        run_at=place.at,
        key=place.key,
    )


def queued(commit: Commit, place: QueueOptions) -> Commit:
    """A commit that starts a run, changed so that the run waits in a queue."""
    run = commit.create
    assert run is not None
    waiting = msgspec.structs.replace(
        run, wait_kind=QUEUED, queue=place.queue, priority=place.priority, runnable_at=None
    )
    return msgspec.structs.replace(commit, create=waiting, tasks=(ticket_of(run, place),))
