"""A child: a run started by a run, with a history of its own and a result that comes back.

The child begins in the commit that records ``child.spawned``. Its id is its parent's id and the key
of the call; in a later life of the parent it names that life too, because children of an earlier one may
go on. It may also have an id of its own. Its last commit sends the outcome to the parent's inbox, with
the life that asked for it.

A run that is retried waits for the children that its earlier lives began. One of them may have ended
while the parent was closed, when nothing could be sent to it; so it is looked for, like a child with an
id of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.operation import Operation
from outlast.errors import ChildFailed, OutlastError
from outlast.model.commit import Start
from outlast.model.event import Event
from outlast.model.event_data import to_event
from outlast.model.ids import check_id
from outlast.model.inbox import Item, Send
from outlast.model.payloads import (
    NULL,
    ChildCompleted,
    ChildFailedEvent,
    ChildSpawned,
    OperationAbandoned,
    Payload,
    WorkflowStarted,
)
from outlast.model.queue_options import QueueOptions
from outlast.model.run import Run, Status
from outlast.model.times import NOW

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class ParentClose(StrEnum):
    """What becomes of a child when its parent ends first."""

    CANCEL = "cancel"
    ABANDON = "abandon"


def cancel_child(child_id: str, parent_uid: str, reason: str) -> Send:
    """The request of a parent to cancel its child."""
    item = Item(kind="cancel", name=reason, id=f"cancel by {parent_uid}")
    return Send(run_id=child_id, item=item)


class ChildRun(Operation):
    """One child, from its start to its outcome."""

    wait_kind = "child"
    ends_by_itself = True

    def __init__(
        self,
        execution: Execution,
        workflow: WorkflowDefinition,
        args: Any,
        kwargs: Any,
        id: str | None,
        parent_close: ParentClose,
        place: QueueOptions | None = None,
    ) -> None:
        self.name = f"child:{workflow.name}"
        self.parent_close = parent_close
        self.may_run = parent_close is ParentClose.CANCEL
        self._place = None if place is None else place.resolved(execution.now)
        self._execution = execution
        self._workflow = workflow
        self.own_id = None if id is None else check_id(id, "child id")
        self.looked_for = id is None
        self.child_id = self.own_id or ""
        self.early: ChildCompleted | ChildFailedEvent | None = None
        self.input, _, _ = workflow.signature.encode_call(execution.codec, args, kwargs)

    def intent(self) -> Payload:
        if self.own_id is None:
            self.child_id = self._adopted() or self._execution.child_id(self.key)
        policy = "" if self.parent_close is ParentClose.CANCEL else self.parent_close.value
        return ChildSpawned(
            child_run_id=self.child_id,
            workflow_name=self._workflow.name,
            input=self.input,
            parent_close=policy,
            place=self._place,
        )

    def _adopted(self) -> str | None:
        """The child that an earlier life began with the same call, if there is one to wait for."""
        started = self._execution.started
        earlier = None if started is None else started.adopts.get(self.key)
        if earlier is None or not self._is_asked_for(earlier.workflow_name, earlier.input):
            return None
        return earlier.child_run_id

    def _is_asked_for(self, workflow: str, input: Raw | None) -> bool:
        """Whether a run of that workflow with that input is the one that the code asks for."""
        if workflow != self._workflow.name:
            return False
        codec, signature = self._execution.codec, self._workflow.signature
        try:
            # Compared as values, not as text: a set has no order of its own.
            return signature.decode_call(codec, input or NULL) == signature.decode_call(
                codec, self.input
            )
        except OutlastError:
            return False

    def enact(self, execution: Execution, said: Payload) -> None:
        if isinstance(said, ChildSpawned):
            execution.draft.starts.append(self._start())
        elif isinstance(said, OperationAbandoned) and self.parent_close is ParentClose.CANCEL:
            execution.draft.sends.append(self.cancel("its parent no longer waits for it"))

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case ChildSpawned(child_run_id=child_id):
                self.child_id = child_id
                self.looked_for = self.own_id is None and child_id == self._execution.child_id(
                    self.key
                )
                self._execution.launches.append(self)
            case ChildCompleted(output=output):
                codec = self._execution.codec
                result = self._workflow.signature.decode_result(codec, output or Raw(b"null"))
                self.resolve(result)
                return True
            case ChildFailedEvent(error=error):
                self.reject(ChildFailed(self.child_id, error, self.key))
                return True
        return False

    @property
    def busy(self) -> bool:
        """Whether somebody has yet to look who has the id that it has of its own."""
        return not self.looked_for

    def outcome_in(self, run: Run | None) -> Payload | None:
        """What a run that has the id of the child says about it, if that is not to be told by its
        end. An id of its own may have been taken before, by another run or by an earlier life of this
        one: that is the same child if it was asked for in the same way."""
        if run is None:
            # One with an id of its own may not have arrived in its partition yet.
            gone = ChildFailedEvent(child_run_id=self.child_id, error="it was deleted")
            return gone if self.own_id is None else None
        if run.parent != self._execution.run_id:
            return ChildFailedEvent(
                child_run_id=run.id, error=f"run {run.id!r} exists and is another's"
            )
        if self.own_id is not None and not self._is_asked_for(run.workflow, run.input):
            return ChildFailedEvent(
                child_run_id=run.id,
                error=f"run {run.id!r} was begun with another input: use another id for this one",
            )
        match run.status:
            case Status.COMPLETED:
                return ChildCompleted(child_run_id=run.id, output=run.result)
            case Status.FAILED | Status.CANCELLED:
                return ChildFailedEvent(child_run_id=run.id, error=run.error or run.status)
        return self.early

    def takes(self, outcome: ChildCompleted | ChildFailedEvent) -> bool:
        """Whether an outcome under the id of the child is that of the child: it was begun for this life,
        or is the run that has the id of its own. Before that is known it has to wait."""
        if not outcome.parent_uid or self._execution.is_own(outcome.parent_uid):
            return True
        if self.own_id is not None and not self.looked_for:
            self.early = outcome
        return self.own_id is not None and self.looked_for

    def cancel(self, reason: str) -> Send:
        """The request to cancel the child."""
        return cancel_child(self.child_id, self._execution.uid, reason)

    def _start(self) -> Start:
        run = Run(
            id=self.child_id,
            workflow=self._workflow.name,
            version=self._workflow.version,
            definition=self._workflow.hash,
            input=self.input,
            parent=self._execution.run_id,
            runnable_at=NOW,
        )
        started = WorkflowStarted(
            workflow_name=run.workflow,
            version=run.version,
            input=self.input,
            place=self._place,
            parent_uid=self._execution.uid,
        )
        event = to_event(started, run_id=run.id, timestamp=self._execution.now)
        return Start(run, (event,))
