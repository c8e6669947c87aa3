"""Belongings: what a run owns that nothing but a move has to read as a whole."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from outlast.model.task import DeadTask, Task


class BoundKey(NamedTuple):
    """An idempotency key that belongs to a run."""

    scope: str
    key: str
    value: str


class Holding(NamedTuple):
    """Who was handed a task, and until when it is theirs alone; None is for good."""

    task_id: str
    queue: str
    owner: str
    until: datetime | None


class Belongings(Struct, frozen=True, kw_only=True):
    """`receipts` are the ids of all items that this life has taken, in the order of their numbers;
    `tasks` those not yet done, in flight or not, and `holdings` who has which of them or had it last;
    `facts` the hashes of the tree whose root it is."""

    receipts: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    holdings: tuple[Holding, ...] = ()
    dead: tuple[DeadTask, ...] = ()
    keys: tuple[BoundKey, ...] = ()
    facts: tuple[str, ...] = ()
