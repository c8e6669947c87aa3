"""Residency policies for tests: a snapshot, an eviction, or both at every commit."""

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


def residency_for(number: int) -> ResidencyPolicy:
    """One of the policies, by number."""
    kinds = list(RESIDENCIES.values())
    return kinds[number % len(kinds)]


__all__ = [
    "DEFAULT_RESIDENCY",
    "EVICTIONS",
    "HARSH",
    "RESIDENCIES",
    "SNAPSHOTS",
    "ResidencyPolicy",
    "residency_for",
]
