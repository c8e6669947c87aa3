"""Tables: the data of the memory store. Dicts, one lock, and a counter of tokens. `TableStore` is the base of the
store's parts."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import TypeVar, get_type_hints

import msgspec

from outlast.errors import StoreClosed
from outlast.model.claim import Claim, Worker
from outlast.model.commit_rules import Head
from outlast.model.event import Event
from outlast.model.ids import SEPARATOR
from outlast.model.queue_policy import PolicyChange, QueuePolicy, counts_places, scope_of
from outlast.model.run import Run
from outlast.model.run_contents import Activity, DeadTask, Entry, Fact, Item, Snapshot, Task, Timer
from outlast.model.times import EPOCH
from outlast.ports.clock import Clock, steady
from outlast.ports.store import Store


@dataclass
class Life:
    """One life of a run with all that it owns: deleting it deletes everything."""

    run: Run
    events: list[Event] = field(default_factory=list)
    event_ids: dict[str, int] = field(default_factory=dict)
    inbox: dict[int, Item] = field(default_factory=dict)
    item_ids: dict[str, int] = field(default_factory=dict)
    timers: dict[str, Timer] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    activities: dict[str, Activity] = field(default_factory=dict)
    snapshot: Snapshot | None = None

    @property
    def head(self) -> Head:
        run = self.run
        return Head(run.uid, run.status, run.sequence, run.revision, run.token, run.commit_id)

    def update(self, **changes: object) -> None:
        self.run = msgspec.structs.replace(self.run, **changes)


@dataclass
class QueuedTask:
    """A task and, while it is in flight, who has it."""

    task: Task
    ready_at: datetime
    order: int
    token: int = 0
    owner: str | None = None
    claimed_until: datetime | None = None

    def held(self, now: datetime) -> bool:
        return self.owner is not None and (self.claimed_until is None or self.claimed_until > now)

    def available(self, now: datetime) -> bool:
        return not self.held(now) and self.ready_at <= now


S = TypeVar("S", bound=msgspec.Struct)


def private(value: S) -> S:
    """A copy that shares no dict with `value`, so that callers cannot change the store."""
    maps = {
        name: dict(found)
        for name in _maps(type(value))
        if isinstance(found := getattr(value, name), dict)
    }
    return msgspec.structs.replace(value, **maps) if maps else value


@cache
def _maps(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that may hold a map."""
    return tuple(name for name, hint in get_type_hints(kind).items() if "dict" in str(hint))


TaskKey = tuple[str, str, str]
"""Queue, run id (empty for a task of no run) and task id."""


@dataclass
class Tables:
    """Everything, and the one lock that makes each operation atomic and thread-safe."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    lives: dict[str, Life] = field(default_factory=dict)
    tasks: dict[TaskKey, QueuedTask] = field(default_factory=dict)
    dead: dict[TaskKey, DeadTask] = field(default_factory=dict)
    facts: dict[tuple[str, str], Fact] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[str, str | None]] = field(default_factory=dict)
    policies: dict[str, QueuePolicy] = field(default_factory=dict)
    declared: dict[str, QueuePolicy] = field(default_factory=dict)
    policy_changes: dict[str, list[PolicyChange]] = field(default_factory=dict)
    passes: dict[tuple[str, str], int] = field(default_factory=dict)
    global_passes: dict[str, int] = field(default_factory=dict)
    starts: dict[str, list[tuple[datetime, str]]] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    token: int = 0
    order: int = 0

    def next_token(self) -> int:
        """A token greater than any before, for whatever run or task: it survives deletion."""
        self.token += 1
        return self.token

    def add_task(self, task: Task, ready_at: datetime) -> bool:
        key = (task.queue, task.run_id, task.id)
        if key in self.tasks:
            return False
        self.order += 1
        if task.key:
            fair_key = scope_of(task.queue), task.key
            self.passes[fair_key] = max(
                self.passes.get(fair_key, 0), self.global_passes.get(fair_key[0], 0)
            )
        self.tasks[key] = QueuedTask(private(task), ready_at, self.order)
        return True

    def add_dead(self, dead: DeadTask, uid: str, now: datetime) -> None:
        """Put a task of a run among the dead."""
        enqueued_at = now if dead.task.enqueued_at == EPOCH else dead.task.enqueued_at
        task = msgspec.structs.replace(private(dead.task), uid=uid, enqueued_at=enqueued_at)
        key = (task.queue, task.run_id, task.id)
        self.dead.setdefault(key, DeadTask(task, dead.reason, dead.died_at))

    def claimed(self, claim: Claim) -> QueuedTask | None:
        """The task that `claim` still holds, or None if it was lost."""
        queued = self.tasks.get((claim.queue or "", claim.run_id, claim.task_id or ""))
        held = queued is not None and queued.owner is not None and queued.token == claim.token
        return queued if held else None

    def alive(self, claim: Claim, now: datetime) -> QueuedTask | None:
        """The task that `claim` may go on to hold: not one whose lease has run out where places are
        counted: another task may have its slot."""
        queued = self.claimed(claim)
        if queued is None or queued.held(now):
            return queued
        return None if counts_places(self.policies.get(scope_of(queued.task.queue))) else queued

    def lease(self, queued: QueuedTask, owner: str, ttl: float | None, now: datetime) -> Claim:
        """Claim a task. Without `ttl` for good."""
        queued.owner = owner
        queued.token = self.next_token()
        queued.claimed_until = None if ttl is None else now + timedelta(seconds=ttl)
        return Claim(
            owner=owner,
            token=queued.token,
            claimed_at=now,
            expires_at=queued.claimed_until,
            run_id=queued.task.run_id,
            uid=queued.task.uid,
            task_id=queued.task.id,
            queue=queued.task.queue,
        )

    def finish(self, claim: Claim) -> None:
        """Remove the task that `claim` holds, and no other of that name in another queue."""
        if self.claimed(claim) is not None:
            del self.tasks[claim.queue or "", claim.run_id, claim.task_id or ""]

    def keep(self, claim: Claim) -> None:
        """Let `claim` hold its task for good."""
        queued = self.claimed(claim)
        if queued is not None:
            queued.claimed_until = None

    def drop_tasks(self, run_id: str, task_ids: set[str] | None = None) -> None:
        """Remove a run's tasks, all of them or those, wherever they stand."""
        for table in (self.tasks, self.dead):
            for key in [k for k in table if k[1] == run_id]:
                if task_ids is None or key[2] in task_ids:
                    del table[key]

    def open_below(self, run_id: str) -> list[str]:
        """The descendants of a run that have not ended, or are being moved to another store."""
        return [id for id in self.below(run_id) if not self.lives[id].run.is_over]

    def below(self, run_id: str) -> list[str]:
        """The descendants of a run."""
        return [id for id in self.lives if id.startswith(run_id + SEPARATOR)]

    def forget(self, run_id: str, *, spare: Collection[str] = ()) -> bool:
        """Remove a run with its descendants and everything they own, except for runs to `spare`: these
        keep the facts of the tree, and the keys of runs that are yet to be created."""
        below = run_id + SEPARATOR

        def goes(id: str | None) -> bool:
            return id is not None and (id == run_id or id.startswith(below)) and id not in spare

        gone = [id for id in self.lives if goes(id)]
        for id in gone:
            del self.lives[id]
            self.drop_tasks(id)
        for key, (_, owner) in list(self.keys.items()):
            if owner in gone if spare else goes(owner):
                del self.keys[key]
        if run_id in gone and not spare:
            for name in [name for name in self.facts if name[0] == run_id]:
                del self.facts[name]
        return run_id in gone


class TableStore(Store):
    """The constructor of the store, which all its parts share (claims.py, inbox.py, …)."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        super().__init__(clock=steady(clock))
        self._tables = Tables()
        self._closed = False

    @contextmanager
    def _locked(self) -> Iterator[Tables]:
        with self._tables.lock:
            if self._closed:
                raise StoreClosed("this store is closed: open it again, or close it later")
            yield self._tables

    @contextmanager
    def _life(self, run_id: str) -> Iterator[Life | None]:
        with self._locked() as tables:
            yield tables.lives.get(run_id)
