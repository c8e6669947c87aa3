"""Loads what a replay needs of a history: the snapshot and the events after it, or all events.

NewRun: the run that a start creates, on its way into the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.replay_log import (
    CODEC,
    DEFAULT_RESIDENCY,
    ReplayLog,
    ResidencyPolicy,
    read_snapshot,
)
from outlast.engine.runner.admission import queued
from outlast.errors import Undecodable
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, to_event
from outlast.model.payloads import WorkflowStarted
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Attribute, Run, Status
from outlast.model.times import NOW
from outlast.ports.backoff import read_with_retry
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store


def is_short(run: Run, residency: ResidencyPolicy) -> bool:
    """Whether a replay of `run` needs its history only, in one page."""
    return 0 < run.sequence < residency.snapshot_after


async def load_replay_log(
    store: Store,
    run: Run,
    history: Sequence[Event] | None = None,
    *,
    timeout_s: float,
    residency: ResidencyPolicy = DEFAULT_RESIDENCY,
) -> ReplayLog:
    """What a replay of `run` needs: its snapshot and the events after it, or all events. Nothing is read for a run
    without history, or whose whole `history` is known. The first try of a call may take `timeout_s` seconds."""

    async def after(sequence: int) -> list[Event]:
        return await read_with_retry(
            store.clock,
            lambda seconds: store.history(run.id, after=sequence, timeout=seconds),
            timeout_s,
        )

    writes = Capability.SNAPSHOTS in store.capabilities
    if writes and run.sequence >= residency.snapshot_after:
        try:
            snapshot = await read_with_retry(
                store.clock,
                lambda seconds: store.find_snapshot(run.id, timeout=seconds),
                timeout_s,
            )
            if snapshot is not None and snapshot.codec == CODEC:
                known = read_snapshot(snapshot)
                replay_log = ReplayLog(
                    known, snapshotted=len(known), writes=True, residency=residency
                )
                replay_log.add(await after(snapshot.sequence))
                return replay_log
        except Undecodable:
            pass  # a cache: the history has all events
    if history is None:
        history = await after(0) if run.sequence else ()
    return ReplayLog(history, writes=writes, residency=residency)


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
