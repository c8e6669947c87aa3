"""RunContents: what a run owns that nothing but a move has to read as a whole.

Activity: the state of one step execution, addressed by its own id alone.

Entry: an audit line that says who did what step, how long it took, with what input and output.

Fact: a value stored once by the hash of its content.

Timer: a durable wake-up kept by the store for engines that ask it which are due.

outlast's own engine does not need these rows: its timers are events, and `runnable_at` wakes the
run. They are here for those who bring an engine of their own.
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
    """Who was handed a task, and until when it is theirs alone; None is for good."""

    task_id: str
    queue: str
    owner: str
    until: datetime | None


class RunContents(Struct, frozen=True, kw_only=True):
    """`receipts` are the ids of all items that this life has taken, in the order of their numbers;
    `tasks` those not yet done, in flight or not, and `holdings` who has which of them or had it last;
    `facts` the hashes of the tree whose root it is."""

    receipts: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    holdings: tuple[HeldTask, ...] = ()
    dead: tuple[DeadTask, ...] = ()
    keys: tuple[BoundKey, ...] = ()
    facts: tuple[str, ...] = ()


class Activity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one activity. The last state saved wins."""

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
    """One audit line of a run. `action` is completed, halted, failed, or a word of your own."""

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
    """Bytes under their SHA-256. `root` is the tree that owns it; empty for the namespace of
    facts that are saved and deleted on their own."""

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
    """A wake-up of a run. Scheduling an id again changes nothing; firing happens once."""

    run_id: str
    id: str
    fire_at: datetime
    fired: bool = False
