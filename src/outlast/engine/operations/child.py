"""A child: a run started by a run, with its own history and a result that is sent to its parent.

The child is created in the commit that records ``child.spawned``. Its id is its parent's id and the key of the call; in
a later life of the parent the id names that life too, because children of earlier lives may still run. The user may
also choose the id. The child's last commit sends the outcome to the parent's inbox, with the life that requested it.

A retried run waits for the children that its earlier lives started. Such a child may have ended while the parent was
terminal, when nothing could be sent to it; so its record is read, as for a child with an explicit id.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import with_place
from outlast.errors import ChildFailed, OutlastError
from outlast.model.commit import Start
from outlast.model.event import Event, to_event
from outlast.model.ids import check_id
from outlast.model.payloads import (
    NULL,
    ChildCompleted,
    ChildFailedEvent,
    ChildSpawned,
    OperationAbandoned,
    Payload,
    WorkflowStarted,
)
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Run, Status, WaitKind
from outlast.model.run_contents import Item, ItemKind, Send
from outlast.model.times import NOW

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class ParentClose(StrEnum):
    """What happens to a child when its parent ends first."""

    CANCEL = "cancel"
    ABANDON = "abandon"


def cancel_child(child_id: str, parent_uid: str, reason: str) -> Send:
    """The request of a parent to cancel its child."""
    item = Item(kind=ItemKind.CANCEL, name=reason, id=f"cancel by {parent_uid}")
    return Send(run_id=child_id, item=item)


class ChildRun(Operation):
    """A child, from its start to its outcome."""

    wait_kind = WaitKind.CHILD
    ends_by_itself = True

    def __init__(
        self,
        execution: Execution,
        workflow: WorkflowDefinition,
        args: Any,
        kwargs: Any,
        id: str | None,
        parent_close: ParentClose,
        queue_options: QueueOptions | None = None,
    ) -> None:
        self.name = f"child:{workflow.name}"
        self.parent_close = parent_close
        self.may_run = parent_close is ParentClose.CANCEL
        self._queue_options = (
            None if queue_options is None else queue_options.resolved(execution.now)
        )
        self._execution = execution
        self._workflow = workflow
        self.explicit_id = None if id is None else check_id(id, "child id")
        self.is_id_checked = id is None
        self.child_id = self.explicit_id or ""
        self.early_outcome: ChildCompleted | ChildFailedEvent | None = None
        self.input, _, _ = workflow.signature.encode_call(execution.codec, args, kwargs)

    def intent(self) -> Payload:
        if self.explicit_id is None:
            self.child_id = self._adopted() or self._execution.child_id(self.key)
        policy = "" if self.parent_close is ParentClose.CANCEL else self.parent_close.value
        return ChildSpawned(
            child_run_id=self.child_id,
            workflow_name=self._workflow.name,
            input=self.input,
            parent_close=policy,
            place=self._queue_options,
        )

    def _adopted(self) -> str | None:
        """The child that an earlier life started with the same call, if there is one to wait for."""
        started = self._execution.started
        earlier = None if started is None else started.adopts.get(self.key)
        if earlier is None or not self._is_requested(earlier.workflow_name, earlier.input):
            return None
        return earlier.child_run_id

    def _is_requested(self, workflow: str, input: Raw | None) -> bool:
        """Whether the code requests a run of that workflow with that input."""
        if workflow != self._workflow.name:
            return False
        codec, signature = self._execution.codec, self._workflow.signature
        try:
            # Compared as values, not as text: the elements of a set have no order.
            return signature.decode_call(codec, input or NULL) == signature.decode_call(
                codec, self.input
            )
        except OutlastError:
            return False

    def on_recorded(self, execution: Execution, payload: Payload) -> None:
        if isinstance(payload, ChildSpawned):
            execution.pending.starts.append(self._start())
        elif isinstance(payload, OperationAbandoned) and self.parent_close is ParentClose.CANCEL:
            execution.pending.sends.append(self.cancel("its parent no longer waits for it"))

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case ChildSpawned(child_run_id=child_id):
                self.child_id = child_id
                own_id = self._execution.child_id(self.key)
                self.is_id_checked = self.explicit_id is None and child_id == own_id
                if not self._execution.reads_history:
                    self._execution.launches.append(self)
            case ChildCompleted(output=output):
                codec = self._execution.codec
                result = self._workflow.signature.decode_result(codec, output or Raw(b"null"))
                self.resolve(result)
                return True
            case ChildFailedEvent(error=error, details=details):
                self.reject(with_place(ChildFailed(self.child_id, error, self.key), details))
                return True
        return False

    @property
    def is_busy(self) -> bool:
        """Whether this process has yet to check which run has the explicit id."""
        return not self.is_id_checked

    def outcome_in(self, run: Run | None) -> Payload | None:
        """The outcome of the child by the record of the run that has its id; None if the child will send it. An
        explicit id may have been taken before, by another run or for an earlier life of the parent: it is the same
        child if workflow and input are the same."""
        if run is None:
            # A child with an explicit id may not have arrived in its partition yet.
            gone = ChildFailedEvent(child_run_id=self.child_id, error="it was deleted")
            return gone if self.explicit_id is None else None
        if run.parent != self._execution.run_id:
            return ChildFailedEvent(
                child_run_id=run.id, error=f"run {run.id!r} exists and has another parent or none"
            )
        if self.explicit_id is not None and not self._is_requested(run.workflow, run.input):
            return ChildFailedEvent(
                child_run_id=run.id,
                error=f"run {run.id!r} was started with another input: use another id for this one",
            )
        match run.status:
            case Status.COMPLETED:
                return ChildCompleted(child_run_id=run.id, output=run.result)
            case Status.FAILED | Status.CANCELLED:
                return ChildFailedEvent(child_run_id=run.id, error=run.error or run.status)
        return self.early_outcome

    def accepts(self, outcome: ChildCompleted | ChildFailedEvent) -> bool:
        """Whether an outcome is that of this child: it was started for this life, or is the run that has the explicit
        id. An outcome that arrives before the id is checked waits in `early_outcome`."""
        if not outcome.parent_uid or self._execution.is_own(outcome.parent_uid):
            return True
        if self.explicit_id is not None and not self.is_id_checked:
            self.early_outcome = outcome
        return self.explicit_id is not None and self.is_id_checked

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
            place=self._queue_options,
            parent_uid=self._execution.uid,
        )
        event = to_event(started, run_id=run.id, timestamp=self._execution.now)
        return Start(run, (event,))
