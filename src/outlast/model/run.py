"""Run: the record of one execution of a workflow, derived from its history."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum, StrEnum
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from outlast._public import public
from outlast.errors import InvalidValue
from outlast.model.ids import new_id
from outlast.model.times import EPOCH

Attribute = str | int | float | bool
AttributeValue = Attribute | Decimal | UUID | date | Enum
"""What a program may give as an attribute; stored as an `Attribute`."""


@public
class Status(StrEnum):
    """The status of a run. `waiting`: for a timer, a signal or a child. `halted`: for a person."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    HALTED = "halted"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the run has ended."""
        return self in TERMINAL

    @classmethod
    def parse(cls, value: str) -> Status:
        """Parse a status as users type it, in any case and in both spellings of cancelled."""
        text = value.strip().lower()
        try:
            return cls("cancelled" if text == "canceled" else text)
        except ValueError:
            names = ", ".join(status.value for status in cls)
            raise InvalidValue(f"{value!r} is not a status: use one of {names}") from None


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class WaitKind(StrEnum):
    """What a run waits for. `Run.wait_kind` is open text, so that an older reader keeps a newer kind."""

    TIMER = "timer"
    SIGNAL = "signal"
    CHILD = "child"
    HALT = "halt"
    RETRY = "retry"
    """The next attempt of a step."""
    TASK = "task"
    """A queued step."""
    SCOPE = "scope"
    LOOP = "loop"
    QUEUE = "queue"
    """Its admission from a queue."""
    MISMATCH = "mismatch"
    """Other code: its history does not match that of the workers, and the run is parked."""
    BUG = "bug"
    """Other code: its own raised a programming error, and the run is parked."""
    MOVING = "moving"
    """Nothing: it is closed because it continues in another store, and is being copied."""
    MOVED = "moved"
    """Nothing: it continues in another store."""


MOVING, MOVED, MISMATCH = WaitKind.MOVING.value, WaitKind.MOVED.value, WaitKind.MISMATCH.value
BUG = WaitKind.BUG.value
MOVED_TO = "moved to "


@public
class Run(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The record of a run.

    `id` is chosen by the user, `uid` names one life of that id: an id that is deleted and reused gets a new
    uid, so that messages and commits for the old life cannot reach the new one. `ctx` has the values that
    the workflow published, by name. `rejected_by` has hashes of code, separated by spaces, that does not match the
    history: workers with that code cannot claim the run. The store sets the fields from `sequence` on and ignores
    given values, except `created_at`, and `ended_at` of an ended run, which an import sets.
    """

    id: str
    workflow: str = ""
    uid: str = msgspec.field(default_factory=new_id)
    version: int | str = ""
    definition: str = ""
    status: Status = Status.PENDING
    wait_kind: str | None = None
    input: Raw | None = None
    ctx: dict[str, Raw] = {}
    current_step: str | None = None
    result: Raw | None = None
    error: str | None = None
    halt_data: Raw | None = None
    recover_to: str | None = None
    rejected_by: str | None = None
    attributes: dict[str, Attribute] = {}
    parent: str | None = None
    queue: str = "default"
    priority: int = 0
    runnable_at: datetime | None = None

    sequence: int = 0
    revision: int = 0
    token: int = 0
    owner: str | None = None
    claimed_until: datetime | None = None
    commit_id: str = ""
    inbox: int = 0
    created_at: datetime = EPOCH
    updated_at: datetime = EPOCH
    ended_at: datetime | None = None

    @property
    def moved_to(self) -> str | None:
        """The address of the store to which the run was moved, or is being moved; else None."""
        if self.status is Status.CANCELLED and self.wait_kind in (MOVING, MOVED):
            return (self.error or "").removeprefix(MOVED_TO)
        return None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, so that retention may delete it. A run that is being moved is closed
        too, but the other store may not have all of it yet."""
        return self.status.terminal and (self.moved_to is None or self.wait_kind != MOVING)

    @property
    def rejections(self) -> tuple[str, ...]:
        """The hashes of the code that does not match the run's history, the latest last."""
        return tuple((self.rejected_by or "").split())

    def may_try(self, code: str | None) -> bool:
        """Whether a worker with this code may claim the run: the code has not been rejected. A parked run
        that receives a message may be claimed by every worker."""
        return code is None or self.is_parked or code not in self.rejections

    @property
    def is_parked(self) -> bool:
        """Whether the run waits for other code."""
        return self.wait_kind in (MISMATCH, BUG)

    @property
    def resume_point(self) -> str | None:
        """The step from which a resume or a retry continues: `recover_to`, else `current_step`."""
        return self.recover_to if self.recover_to is not None else self.current_step


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The patch of a run's record in a commit. A field that is not set is not changed.

    `runnable_at` is the time from which the run may be claimed, or None to park it until a message
    arrives.
    """

    workflow: str | UnsetType = UNSET
    version: int | str | UnsetType = UNSET
    definition: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    wait_kind: str | UnsetType | None = UNSET
    input: Raw | UnsetType | None = UNSET
    ctx: dict[str, Raw] | UnsetType = UNSET
    current_step: str | UnsetType | None = UNSET
    result: Raw | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    halt_data: Raw | UnsetType | None = UNSET
    recover_to: str | UnsetType | None = UNSET
    rejected_by: str | UnsetType | None = UNSET
    attributes: dict[str, Attribute] | UnsetType = UNSET
    queue: str | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    runnable_at: datetime | UnsetType | None = UNSET

    def values(self) -> dict[str, object]:
        """The fields that are set, by name, in the order of declaration."""
        values = {}
        # A plain loop is 25 % faster than a comprehension, and every turn of a run calls this.
        for name, value in zip(CHANGEABLE, msgspec.structs.astuple(self)):  # noqa: B905
            if value is not UNSET:
                values[name] = value  # noqa: PERF403
        return values

    @classmethod
    def of(cls, run: Run) -> Change:
        """The change that gives a record all values of `run` that a caller may set."""
        return cls(**{name: getattr(run, name) for name in CHANGEABLE})


CHANGEABLE: tuple[str, ...] = Change.__struct_fields__
