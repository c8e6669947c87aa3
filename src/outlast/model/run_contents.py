"""RunContents: what a run owns besides its record, its events and its inbox.

`Activity`, `Entry`, `Fact` and `Timer` are rows for engines of your own; the engine of outlast records
events instead. `RunContents` is what only a transfer reads as a whole.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from outlast.model.ids import new_id
from outlast.model.run import Status
from outlast.model.task import DeadTask, Task
from outlast.model.times import EPOCH


class BoundKey(NamedTuple):
    """An idempotency key that belongs to a run."""

    scope: str
    key: str
    value: str


class HeldTask(NamedTuple):
    """The owner of a task, and until when; None: the claim never expires."""

    task_id: str
    queue: str
    owner: str
    until: datetime | None


class RunContents(Struct, frozen=True, kw_only=True):
    """`receipts` are the ids of all items that this life has received, in the order of their numbers;
    `tasks` those that are not finished, and `holdings` their owners; `facts` the hashes of the tree
    whose root the run is."""

    receipts: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    holdings: tuple[HeldTask, ...] = ()
    dead: tuple[DeadTask, ...] = ()
    keys: tuple[BoundKey, ...] = ()
    facts: tuple[str, ...] = ()


class Activity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of one step execution, found by its own id alone. The last writer wins."""

    id: str
    run_id: str
    name: str = ""
    status: Status = Status.PENDING
    input: Raw | None = None
    output: Raw | None = None
    error: str | None = None
    attempt: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An audit line: which step, how long, input and output. `action` is completed, halted, failed, or a
    word of your own."""

    run_id: str
    step_id: str
    action: str
    id: str = msgspec.field(default_factory=new_id)
    step_type: str = ""
    duration_ms: int | None = None
    input: Raw | None = None
    output: Raw | None = None
    error: str | None = None
    timestamp: datetime = EPOCH


class Fact(Struct, frozen=True):
    """Bytes stored under their SHA-256. `root` is the tree that owns it; empty for the namespace of facts
    that are saved and deleted on their own."""

    hash: str
    data: bytes
    root: str = ""

    @classmethod
    def of(cls, data: bytes, root: str = "") -> Fact:
        """The fact that holds `data`."""
        return cls(hash=hash_of(data), data=data, root=root)


def hash_of(data: bytes) -> str:
    """The name of a fact: the SHA-256 of its bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


class Timer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A durable wake-up of a run. Scheduling is idempotent by id; a timer fires once."""

    run_id: str
    id: str
    fire_at: datetime
    fired: bool = False
