"""Tombstones: the two commits with which a run leaves a store, and how a moved run is recognised.

`moving_commit` closes a run and marks it as moving; the same commit keeps the state that closing drops.
`tombstone_commit` replaces the run, once it has arrived elsewhere, by a record with its new address.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, EventType, payload_of, to_event
from outlast.model.json import from_json, to_json
from outlast.model.payloads import WorkflowMoved
from outlast.model.run import MOVED, MOVED_TO, MOVING, Change, Run, Status
from outlast.model.run_contents import DeadTask, Fact, RunContents, Task, Timer
from outlast.model.times import NOW


class DeadTaskRecord(Struct, frozen=True, kw_only=True):
    """A dead task as JSON; its task is JSON of its own."""

    task: Raw
    reason: str
    died_at: datetime

    @classmethod
    def of(cls, dead: DeadTask) -> DeadTaskRecord:
        """The record of a dead task."""
        return cls(task=Raw(to_json(dead.task)), reason=dead.reason, died_at=dead.died_at)

    def read(self) -> DeadTask:
        """The dead task of this record."""
        task = from_json(self.task, Task, where="a dead task that is moved")
        return DeadTask(task, self.reason, self.died_at)


class StateBeforeMove(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a run before it was marked as moving, as far as closing drops it. Each task is JSON of its
    own."""

    status: Status
    wait_kind: str | None = None
    error: str | None = None
    runnable_at: datetime | None = None
    inbox: int = 0
    timers: tuple[Timer, ...] = ()
    tasks: tuple[Raw, ...] = ()
    dead: tuple[DeadTaskRecord, ...] = ()

    @property
    def open_tasks(self) -> list[Task]:
        """The tasks that were not finished."""
        return [from_json(task, Task, where="a task that is moved") for task in self.tasks]

    @property
    def dead_tasks(self) -> list[DeadTask]:
        """The dead tasks, with the reason."""
        return [dead.read() for dead in self.dead]


def moving_commit(run: Run, contents: RunContents, timers: list[Timer], moved_to: str) -> Commit:
    """The commit that takes the claim on a run by force and marks it as moving, if its revision is unchanged."""
    # Its owner loses the claim, so the target drives the run at once.
    busy = run.owner is not None
    state = StateBeforeMove(
        status=run.status,
        wait_kind=run.wait_kind,
        error=run.error,
        runnable_at=NOW if busy and run.runnable_at is not None else run.runnable_at,
        inbox=run.inbox,
        timers=tuple(timers),
        tasks=tuple(Raw(to_json(task)) for task in contents.tasks),
        dead=tuple(map(DeadTaskRecord.of, contents.dead)),
    )
    fact = Fact.of(to_json(state))
    moved = WorkflowMoved(moved_to=moved_to, state=fact.hash)
    return Commit(
        run_id=run.id,
        uid=run.uid,
        revision=run.revision,
        force=True,
        events=(to_event(moved, run_id=run.id),),
        change=Change(
            status=Status.CANCELLED,
            wait_kind=MOVING,
            error=f"{MOVED_TO}{moved_to}",
            runnable_at=None,
        ),
        facts=(fact,),
    )


def tombstone_commit(run: Run, moved_to: str) -> Commit:
    """The commit that replaces a run and its tree by a tombstone."""
    moved = WorkflowMoved(moved_to=moved_to, life=run.uid)
    left = Run(
        id=run.id,
        workflow=run.workflow,
        parent=run.parent,
        status=Status.CANCELLED,
        wait_kind=MOVED,
        error=f"{MOVED_TO}{moved_to}",
        created_at=run.created_at,
    )
    return Commit(
        run_id=run.id,
        uid=run.uid,
        revision=run.revision,
        force=True,
        create=left,
        creation=Creation.REPLACE,
        events=(to_event(moved, run_id=run.id),),
    )


def is_moving(run: Run) -> bool:
    """Whether a run is marked as moving: closed here, and not yet known to have arrived."""
    return run.moved_to is not None and run.wait_kind == MOVING


def is_tombstone(run: Run) -> bool:
    """Whether a record only says where a run has moved to."""
    return run.moved_to is not None and not is_moving(run)


def moved_event(run: Run, history: list[Event]) -> WorkflowMoved:
    """The event that marks a run as moving, which is its last one."""
    if not history or history[-1].type != EventType.WORKFLOW_MOVED:
        raise Undecodable(
            f"run {run.id!r} is sealed, but its history does not end with the state_hash"
        )
    payload = payload_of(history[-1])
    assert isinstance(payload, WorkflowMoved)
    return payload


def address_of(url: str) -> str:
    """The URL of a store without its password, fit to be shown and stored."""
    try:
        parts = urlsplit(url)
        if parts.password is None and "password" not in parts.query.lower():
            return url
        user = f"{parts.username}:***@" if parts.username or parts.password else ""
        host = parts.netloc.rpartition("@")[2]
        query = "***" if "password" in parts.query.lower() else parts.query
        return urlunsplit(parts._replace(netloc=user + host, query=query))
    except ValueError:
        return "a URL that cannot be read"
