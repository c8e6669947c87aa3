"""What a run owns besides its record and its events: inbox items, tasks, keys, facts, timers, entries.

`Item`: a message in the inbox of a run, which its owner has not yet recorded in the history. Other
processes send items; the store numbers those of a run 1, 2, 3 … in the order of arrival. The commit that
records an item also consumes it, so it takes effect exactly once.

`Task`: a message in a queue. A worker leases it, and it stays in the queue until it is finished.

`Activity`, `Entry`, `Fact` and `Timer` are rows for engines of your own; the engine of outlast records
events instead. `RunContents` is what a transfer reads of a run.

`Snapshot`: the state of a run at a sequence, to shorten replay. A cache, never the truth: one that cannot be decoded, or
that belongs to another definition, is discarded, and the whole history is replayed. The store keeps it as one blob with
a header that says how to decode it::

    b"OLS1" | u32 length of header | header (JSON) | body
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from outlast.errors import Undecodable
from outlast.model.claim import Claim
from outlast.model.ids import new_id
from outlast.model.json import from_json, to_json
from outlast.model.run import Status
from outlast.model.times import EPOCH

RECEIPTS_CARRIED = 1000
"""How many receipts a new life takes over with the inbox: an item that is sent again is recognised.
The receipts of items that wait are always kept."""


class ItemKind(StrEnum):
    """What a message to a run is. `Item.kind` is open text: an older reader keeps a newer kind."""

    SIGNAL = "signal"
    UPDATE = "update"
    RESUME = "resume"
    """The answer to a halt."""
    PAUSE = "pause"
    UNPAUSE = "unpause"
    CANCEL = "cancel"
    STEP = "step"
    """The outcome of a step that another process has executed."""
    CHILD_COMPLETED = "child.completed"
    CHILD_FAILED = "child.failed"
    ADMIT = "admit"
    """A queue lets the run start."""
    RECEIPT = "receipt"
    """No message: the id of one that a moved run has received before."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to a run. `kind` says what it is (`ItemKind`); `id` is the idempotency
    key: an id is received once in a life of the run."""

    kind: str
    name: str = ""
    id: str = msgspec.field(default_factory=new_id)
    data: Raw | None = None
    sender: str = ""
    number: int = 0
    sent_at: datetime = EPOCH


class Send(Struct, frozen=True, kw_only=True):
    """An item and its receiver. With `uid` only that life of the run receives it."""

    run_id: str
    item: Item
    uid: str | None = None


class Receipt(Struct, frozen=True):
    """An item is in the inbox. `again`: it was received before."""

    number: int
    again: bool = False


def refusing(sends: Sequence[Send], receipts: Sequence[object]) -> set[str]:
    """The runs that refused an item."""
    return {
        send.run_id
        for send, receipt in zip(sends, receipts, strict=True)
        if not isinstance(receipt, Receipt)
    }


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work for a worker. A task of a run has `run_id`, `uid` and the step's key.

    The smallest `priority` is served first. Tasks with the same `key` (a tenant, a customer) form a
    line, and lines are served fairly. `run_at` delays the task. `attempt` counts deliveries and is increased
    before the work starts, so that a task that crashes its worker is counted too.
    """

    id: str = msgspec.field(default_factory=new_id)
    queue: str = "default"
    kind: str = "step"
    name: str = ""
    run_id: str = ""
    uid: str = ""
    step: str = ""
    definition: str = ""
    input: Raw | None = None
    priority: int = 0
    run_at: datetime | None = None
    attempt: int = 0
    metadata: dict[str, str] = {}
    enqueued_at: datetime = EPOCH
    key: str = ""


class Delivery(Struct, frozen=True):
    """A task handed out, and the claim to finish, extend or return it."""

    task: Task
    claim: Claim


class DeadTask(Struct, frozen=True):
    """A task that is no longer retried, why, and since when."""

    task: Task
    reason: str
    died_at: datetime


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


MAGIC = b"OLS1"


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a run at `sequence`: recover from it and the events after it."""

    run_id: str
    sequence: int
    data: bytes
    definition: str = ""
    codec: str = "json"
    created_at: datetime = EPOCH

    def pack(self) -> bytes:
        """The envelope with this snapshot inside."""
        header = msgspec.json.encode(
            _Header(self.run_id, self.sequence, self.definition, self.codec, self.created_at)
        )
        return b"".join((MAGIC, len(header).to_bytes(4, "big"), header, self.data))

    @classmethod
    def unpack(cls, envelope: bytes) -> Snapshot:
        """Decode an envelope; `Undecodable` if it is damaged or of an unknown format."""
        if envelope[:4] != MAGIC:
            raise Undecodable(
                f"a snapshot starts with {envelope[:4]!r}, not {MAGIC!r}: it is damaged or of a newer "
                "format. Delete it; the engine then replays the history"
            )
        end = 8 + int.from_bytes(envelope[4:8], "big")
        try:
            header = msgspec.json.decode(envelope[8:end], type=_Header)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Undecodable(f"the header of a snapshot is damaged: {error}") from error
        return cls(
            run_id=header.run_id,
            sequence=header.sequence,
            data=envelope[end:],
            definition=header.definition,
            codec=header.codec,
            created_at=header.created_at,
        )


class Position(StrEnum):
    """The position of a run, for engines of your own."""

    NOT_STARTED = "not_started"
    AT_TASK = "at_task"
    AT_FORK = "at_fork"
    AT_JOIN = "at_join"


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A ready-made snapshot body for engines that go from task to task: the input, the outputs of
    completed tasks, and the position."""

    input: Raw | None = None
    completed: dict[str, Raw] = {}
    position: Position = Position.NOT_STARTED
    at: list[str] = []
    last_completed: str | None = None

    def encode(self) -> bytes:
        """The body to put in `Snapshot.data`."""
        return to_json(self)

    @classmethod
    def decode(cls, body: bytes) -> Progress:
        """Decode a body; `Undecodable` if it is damaged."""
        return from_json(body, cls, where="this snapshot")


class _Header(Struct, frozen=True, array_like=True):
    run_id: str
    sequence: int
    definition: str
    codec: str
    created_at: datetime
