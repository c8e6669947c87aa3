"""NewRun: the run that a start creates, on its way into the store; in a queue, with its ticket."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.model.commit import Commit, Creation
from outlast.model.event import to_event
from outlast.model.payloads import WorkflowStarted
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Attribute, Run, Status, WaitKind
from outlast.model.run_contents import Item, Send, Task
from outlast.model.times import NOW

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
