"""A child: a run started by a run, with a history of its own and a result that comes back.

The child begins in the commit that records ``child.spawned``. Its id is its parent's id and the key
of the call, so a replay finds the same child; it may also have an id of its own. Its last commit
sends the outcome to the parent's inbox.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definition import WorkflowDefinition
from outlast.engine.operations.operation import Operation
from outlast.errors import ChildFailed
from outlast.model.commit import Start
from outlast.model.event import Event
from outlast.model.event_data import to_event
from outlast.model.ids import SEPARATOR, check_id
from outlast.model.inbox import Item, Send
from outlast.model.payloads import (
    ChildCompleted,
    ChildSpawned,
    OperationAbandoned,
    Payload,
    WorkflowStarted,
)
from outlast.model.payloads import ChildFailed as Failed
from outlast.model.place import InQueue
from outlast.model.run import Run, Status
from outlast.model.times import NOW

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


def child_id_of(run_id: str, key: str) -> str:
    """The id of the child that a run has asked for under `key`."""
    # A key's colon has no place in an id.
    return f"{run_id}{SEPARATOR}{key.replace(':', '.')}"


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
        place: InQueue | None = None,
    ) -> None:
        self.name = f"child:{workflow.name}"
        self.parent_close = parent_close
        self.may_run = parent_close is ParentClose.CANCEL
        self._place = None if place is None else place.resolved(execution.now)
        self._execution = execution
        self._workflow = workflow
        self.own_id = None if id is None else check_id(id, "child id")
        self.looked_for = id is None
        self.input, _, _ = workflow.signature.encode_call(execution.codec, args, kwargs)

    @property
    def child_id(self) -> str:
        """The id of the child run."""
        return self.own_id or child_id_of(self._execution.run_id, self.key)

    def intent(self) -> Payload:
        policy = "" if self.parent_close is ParentClose.CANCEL else self.parent_close.value
        return ChildSpawned(
            child_run_id=self.child_id,
            workflow_name=self._workflow.name,
            input=self.input,
            parent_close=policy,
            place=self._place,
        )

    def enact(self, execution: Execution, said: Payload) -> None:
        if isinstance(said, ChildSpawned):
            execution.draft.starts.append(self._start())
        elif isinstance(said, OperationAbandoned) and self.parent_close is ParentClose.CANCEL:
            execution.draft.sends.append(self.cancel("its parent no longer waits for it"))

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case ChildSpawned():
                self._execution.launches.append(self)
            case ChildCompleted(output=output):
                codec = self._execution.codec
                result = self._workflow.signature.decode_result(codec, output or Raw(b"null"))
                self.resolve(result)
                return True
            case Failed(error=error):
                self.reject(ChildFailed(self.child_id, error, self.key))
                return True
        return False

    @property
    def busy(self) -> bool:
        """Whether somebody has yet to look who has the id that it has of its own."""
        return not self.looked_for

    def outcome_in(self, run: Run) -> Payload | None:
        """What a run that has the id of the child says about it, if that is not to be told by its
        end. An id of its own may have been taken before, by somebody else or by this run."""
        if run.parent != self._execution.run_id:
            return Failed(child_run_id=run.id, error=f"run {run.id!r} exists and is another's")
        match run.status:
            case Status.COMPLETED:
                return ChildCompleted(child_run_id=run.id, output=run.result)
            case Status.FAILED | Status.CANCELLED:
                return Failed(child_run_id=run.id, error=run.error or run.status)
        return None

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
            workflow_name=run.workflow, version=run.version, input=self.input, place=self._place
        )
        event = to_event(started, run_id=run.id, timestamp=self._execution.now)
        return Start(run, (event,))
