"""NewRun: the run that a start creates, on its way into the store."""

from __future__ import annotations

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.runner.admission import queued
from outlast.model.commit import Commit, Creation
from outlast.model.event_data import to_event
from outlast.model.payloads import WorkflowStarted
from outlast.model.queue_options import QueueOptions
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import NOW


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
        )
        return commit if self.queue is None else queued(commit, self.queue)
