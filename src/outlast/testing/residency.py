"""Residencies for tests: what is rare in production, a snapshot and a replay, at every commit."""

from __future__ import annotations

from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy

SNAPSHOTS = ResidencyPolicy(snapshot_after=2, growth=0)
EVICTIONS = ResidencyPolicy(evicts=True)
HARSH = ResidencyPolicy(snapshot_after=2, growth=0, evicts=True)

RESIDENCIES = {
    "usual": DEFAULT_RESIDENCY,
    "snapshots": SNAPSHOTS,
    "evictions": EVICTIONS,
    "both": HARSH,
}


def in_turn(number: int) -> ResidencyPolicy:
    """Each of them in turn."""
    kinds = list(RESIDENCIES.values())
    return kinds[number % len(kinds)]


__all__ = [
    "DEFAULT_RESIDENCY",
    "EVICTIONS",
    "HARSH",
    "RESIDENCIES",
    "SNAPSHOTS",
    "ResidencyPolicy",
    "in_turn",
]
