"""Residency: how long a run stays in memory, and when its history is summed up in a snapshot.

The defaults are for speed. Tests choose others, so that what is rare in production (a snapshot, a
replay) happens at every commit: one place for the engine, its claims and its digests alike.
"""

from __future__ import annotations

from msgspec import Struct

from outlast.errors import InvalidValue

SNAPSHOT_AFTER = 256


class Residency(Struct, frozen=True, kw_only=True):
    """`snapshot_after`: a history with fewer events than this is read faster than a snapshot is
    looked for. `growth`: the next snapshot comes when the digest has grown by this share of the
    last one, so that a long run writes its digest a few times, not once per event. `evicts`: a run
    leaves memory with every commit that has brought it further, as soon as none of its steps runs,
    and is resumed from the store."""

    snapshot_after: int = SNAPSHOT_AFTER
    growth: float = 1.0
    evicts: bool = False

    def __post_init__(self) -> None:
        if self.snapshot_after < 1 or self.growth < 0:
            raise InvalidValue(
                f"snapshot_after={self.snapshot_after}, growth={self.growth}: a snapshot needs at "
                "least one event, and no digest shrinks; use snapshot_after ≥ 1 and growth ≥ 0"
            )

    def due_after(self, snapshotted: int) -> int:
        """How many events a digest has when its next snapshot is due, after one of so many."""
        return snapshotted + max(self.snapshot_after, int(snapshotted * self.growth))


USUAL = Residency()
