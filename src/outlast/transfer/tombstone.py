"""Sealing: a run is closed where it is, in one commit that also keeps what closing takes away.

Addresses: how a store is named to others, without what nobody else should know.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.commit import Commit, Creation
from outlast.model.event import Event, EventType
from outlast.model.event_data import payload_of, to_event
from outlast.model.json import from_json, to_json
from outlast.model.payloads import WorkflowMoved
from outlast.model.run import MOVED, MOVED_TO, MOVING, Change, Run, Status
from outlast.model.run_contents import Fact, RunContents, Timer
from outlast.model.task import DeadTask, Task
from outlast.model.times import NOW


class Tombstone(Struct, frozen=True, kw_only=True):
    """A dead task as text: the task is one of its own."""

    task: Raw
    reason: str
    died_at: datetime

    @classmethod
    def of(cls, dead: DeadTask) -> Tombstone:
        """A dead task, to be written."""
        return cls(task=Raw(to_json(dead.task)), reason=dead.reason, died_at=dead.died_at)

    def read(self) -> DeadTask:
        """The dead task that was written."""
        task = from_json(self.task, Task, where="a dead task that is moved")
        return DeadTask(task, self.reason, self.died_at)


class Sealed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run was before it was sealed, as far as closing it takes that away. Tasks are texts of
    their own."""

    status: Status
    wait_kind: str | None = None
    error: str | None = None
    runnable_at: datetime | None = None
    inbox: int = 0
    timers: tuple[Timer, ...] = ()
    tasks: tuple[Raw, ...] = ()
    dead: tuple[Tombstone, ...] = ()

    @property
    def living(self) -> list[Task]:
        """The tasks that were not done."""
        return [from_json(task, Task, where="a task that is moved") for task in self.tasks]

    @property
    def buried(self) -> list[DeadTask]:
        """The dead tasks, with the reason."""
        return [dead.read() for dead in self.dead]


def sealing(run: Run, owned: RunContents, timers: list[Timer], moved_to: str) -> Commit:
    """The commit that takes the claim on a run by force and seals it, if it is still as it was."""
    # Whoever holds it is cut off, and what it was doing is to be gone on with at once.
    busy = run.owner is not None
    state = Sealed(
        status=run.status,
        wait_kind=run.wait_kind,
        error=run.error,
        runnable_at=NOW if busy and run.runnable_at is not None else run.runnable_at,
        inbox=run.inbox,
        timers=tuple(timers),
        tasks=tuple(Raw(to_json(task)) for task in owned.tasks),
        dead=tuple(map(Tombstone.of, owned.dead)),
    )
    fact = Fact.of(to_json(state))
    moved = WorkflowMoved(moved_to=moved_to, state=fact.hash)
    return Commit(
        run_id=run.id,
        uid=run.uid,
        revision=run.revision,
        force=True,
        events=(to_event(moved, run_id=run.id),),
        change=_closed(moved_to, MOVING),
        facts=(fact,),
    )


def forgetting(run: Run, moved_to: str) -> Commit:
    """The commit that puts one record, which says where a run is now, in place of its tree."""
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


def is_sealed(run: Run) -> bool:
    """Whether a run is closed because it is being moved."""
    return run.moved_to is not None and run.wait_kind == MOVING


def seal_in(run: Run, history: list[Event]) -> WorkflowMoved:
    """What the seal says, which is the last event of a sealed run."""
    if not history or history[-1].type != EventType.WORKFLOW_MOVED:
        raise Undecodable(f"run {run.id!r} is sealed, but its history does not end with the seal")
    said = payload_of(history[-1])
    assert isinstance(said, WorkflowMoved)
    return said


def _closed(moved_to: str, kind: str) -> Change:
    return Change(
        status=Status.CANCELLED,
        wait_kind=kind,
        error=f"{MOVED_TO}{moved_to}",
        runnable_at=None,
    )


def address_of(url: str) -> str:
    """The URL of a store without a password, so that it may be shown and kept."""
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
