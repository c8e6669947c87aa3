"""Loads what a replay needs of a history: the snapshot and the events after it, or all events."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.engine.replay.replay_log import (
    CODEC,
    DEFAULT_RESIDENCY,
    ReplayLog,
    ResidencyPolicy,
    read_snapshot,
)
from outlast.errors import Undecodable
from outlast.model.event import Event
from outlast.model.run import Run
from outlast.ports.clock import read_with_retry
from outlast.ports.port import Capability
from outlast.ports.store import Store


def is_short(run: Run, residency: ResidencyPolicy) -> bool:
    """Whether a replay of `run` needs its history only, in one page."""
    return 0 < run.sequence < residency.snapshot_after


async def load_replay_log(
    store: Store,
    run: Run,
    history: Sequence[Event] | None = None,
    *,
    timeout_s: float,
    residency: ResidencyPolicy = DEFAULT_RESIDENCY,
) -> ReplayLog:
    """What a replay of `run` needs: its snapshot and the events after it, or all events. Nothing is read for a run
    without history, or whose whole `history` is known. The first try of a call may take `timeout_s` seconds."""

    async def after(sequence: int) -> list[Event]:
        return await read_with_retry(
            store.clock,
            lambda seconds: store.history(run.id, after=sequence, timeout=seconds),
            timeout_s,
        )

    writes = Capability.SNAPSHOTS in store.capabilities
    if writes and run.sequence >= residency.snapshot_after:
        try:
            snapshot = await read_with_retry(
                store.clock,
                lambda seconds: store.find_snapshot(run.id, timeout=seconds),
                timeout_s,
            )
            if snapshot is not None and snapshot.codec == CODEC:
                known = read_snapshot(snapshot)
                replay_log = ReplayLog(
                    known, snapshotted=len(known), writes=True, residency=residency
                )
                replay_log.add(await after(snapshot.sequence))
                return replay_log
        except Undecodable:
            pass  # a cache: the history has all events
    if history is None:
        history = await after(0) if run.sequence else ()
    return ReplayLog(history, writes=writes, residency=residency)
