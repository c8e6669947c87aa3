"""Restoring: cargo that was kept in a file becomes runs again, as if it had been moved.

The file stays what it was, so that nothing is sealed or forgotten. A run that had not ended comes in
paused, for it may go on elsewhere too: its queued steps wait among the dead until they are brought back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from outlast.errors import Moved, RunExists
from outlast.model.checks import check_commit
from outlast.model.ids import root_of
from outlast.model.run import Status
from outlast.model.task import DeadTask
from outlast.model.times import NOW
from outlast.moving.cargo import Cargo, tell_parents
from outlast.moving.holding import MOVER, PARTS_SECONDS
from outlast.moving.landing import Landing, Tree, check_unsealed
from outlast.ports.store import Store

WAITS = "imported paused: bring it back with `outlast dead redrive`"


@dataclass
class Restored:
    """What became of an import: how many runs there are, how many of them are new, how many queued
    steps wait among the dead, and in which queues."""

    runs: int
    written: int
    waiting: int = 0
    queues: tuple[str, ...] = ()


async def restore(
    store: Store,
    cargos: list[Cargo],
    *,
    live: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Restored:
    """Bring a family from a file, the first of it at the head. Nothing is written if one of its runs
    is there as another life, or was moved from there. Killed, it is simply called again: what has come
    is not brought twice."""
    now = await store.now()
    tell_parents(cargos)
    ready = [_alive(one) if live else _paused(one, now) for one in cargos]
    for cargo in ready:
        check_commit(cargo.arrival(MOVER, PARTS_SECONDS, grave=None))
        there = await store.find_one(cargo.run.id)
        check_unsealed(there)
        if there is not None and there.moved_to is not None:
            raise Moved(there.id, there.moved_to)
        if there is not None and there.uid != cargo.run.uid:
            raise RunExists(there.id, there.uid)
    trees: dict[str, Tree] = {}
    for cargo in ready:
        trees.setdefault(root_of(cargo.run.id), []).append(cargo)
    landing = Landing(store, progress)
    written = await landing.bring(list(trees.values()))
    await landing.settle(list(trees.values()))
    held = [one for one in cargos if not live and not one.run.status.terminal]
    steps = [task.queue for one in held for task in one.tasks]
    return Restored(len(ready), written, len(steps), tuple(sorted(set(steps))))


def _paused(cargo: Cargo, now: datetime) -> Cargo:
    if cargo.run.status.terminal:
        return cargo
    dead = [DeadTask(task, WAITS, now) for task in cargo.tasks]
    run = msgspec.structs.replace(cargo.run, status=Status.PAUSED, runnable_at=None)
    return replace(cargo, run=run, tasks=[], dead=[*cargo.dead, *dead])


def _alive(cargo: Cargo) -> Cargo:
    run = cargo.run
    busy = run.status in (Status.PENDING, Status.RUNNING) or run.owner is not None
    if run.status.terminal or not busy:
        return cargo
    return replace(cargo, run=msgspec.structs.replace(run, runnable_at=NOW))
