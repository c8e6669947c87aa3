"""Belongings: what a run owns that nothing but a move has to read as a whole."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from outlast.model.task import DeadTask, Task


class BoundKey(NamedTuple):
    """An idempotency key that belongs to a run."""

    scope: str
    key: str
    value: str


class Belongings(Struct, frozen=True, kw_only=True):
    """`receipts` are the ids of all items that this life has taken, in the order of their numbers;
    `tasks` those not yet done, in flight or not; `facts` the hashes of the tree whose root it is."""

    receipts: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()
    dead: tuple[DeadTask, ...] = ()
    keys: tuple[BoundKey, ...] = ()
    facts: tuple[str, ...] = ()
