"""Run: one execution of a workflow, as a typed record. A projection of its history."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from outlast.errors import InvalidValue
from outlast.model.ids import new_id
from outlast.model.times import EPOCH

Attribute = str | int | float | bool


class Status(StrEnum):
    """Where a run stands. `waiting` is for a machine (timer, signal, child), `halted` for a person."""

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
        """Whether the run has ended for good."""
        return self in TERMINAL

    @classmethod
    def parse(cls, value: str) -> Status:
        """Read a status as people write it; both spellings of cancelled are understood."""
        text = value.strip().lower()
        try:
            return cls("cancelled" if text == "canceled" else text)
        except ValueError:
            names = ", ".join(status.value for status in cls)
            raise InvalidValue(f"{value!r} is not a status: use one of {names}") from None


TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


MOVING, MOVED = "moving", "moved"
"""What `wait_kind` says of a run that is closed because it goes on in another store: not all of it
is there yet, or it is."""
MOVED_TO = "moved to "

MISMATCH = "mismatch"
"""What `wait_kind` says of a run that is parked because no code that was tried can go on with it."""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The record of a run.

    `id` is chosen by the user, `uid` names one life of that id: deleting and reusing an id gives
    a new uid, and nothing of the old life can reach the new one. `ctx` holds what the workflow
    has published, by name, and nothing of ours. `rejected_by` has the hashes, separated by spaces, of
    code that could not go on with it: workers with that code are not handed it. The fields from `sequence` on are kept by the
    store; what a caller puts there is ignored, but for the `created_at`, and of a run that has ended
    the `ended_at`, that an import brings.
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
        """Where the run goes on, if it was moved, or is being moved, to another store."""
        if self.status is Status.CANCELLED and self.wait_kind in (MOVING, MOVED):
            return (self.error or "").removeprefix(MOVED_TO)
        return None

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good, so that age may delete it: one that is being moved is closed
        too, but may not be all in the other store yet."""
        return self.status.terminal and (self.moved_to is None or self.wait_kind != MOVING)

    @property
    def rejections(self) -> tuple[str, ...]:
        """The hashes of the code that could not go on with the run, the latest last."""
        return tuple((self.rejected_by or "").split())

    def may_try(self, code: str | None) -> bool:
        """Whether a worker with this code may be handed the run: it has not failed on it before. A run
        that is parked already may be tried by every worker when something is sent to it."""
        return code is None or self.wait_kind == MISMATCH or code not in self.rejections

    @property
    def resume_point(self) -> str | None:
        """The step from which a resume or a retry goes on: `recover_to`, else `current_step`."""
        return self.recover_to if self.recover_to is not None else self.current_step


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a commit alters in a run's record. A field left out stays as it is.

    `runnable_at` decides who may claim the run and when: a time (now or later), or None to park
    it until somebody sends something.
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
        # A plain loop takes three quarters of the time, and every turn of a run asks.
        for name, value in zip(CHANGEABLE, msgspec.structs.astuple(self)):  # noqa: B905
            if value is not UNSET:
                values[name] = value  # noqa: PERF403
        return values

    @classmethod
    def of(cls, run: Run) -> Change:
        """The change that makes a record equal to `run` in all that a caller decides."""
        return cls(**{name: getattr(run, name) for name in CHANGEABLE})


CHANGEABLE: tuple[str, ...] = Change.__struct_fields__
