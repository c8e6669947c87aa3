"""Gathering: a family as it is, read without being touched, to be kept in a file.

Restoring: cargo that was kept in a file becomes runs again, as if it had been moved.

The file stays what it was, so that nothing is sealed or forgotten. A run that had not ended comes in
paused, for it may go on elsewhere too: its queued steps wait among the dead until they are brought back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from outlast.errors import Busy, Moved, RunExists
from outlast.model.ids import root_of
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.model.task import DeadTask
from outlast.model.times import NOW
from outlast.model.validation import check_commit
from outlast.ports.store import Store
from outlast.transfer.bundle import Bundle, load, load_facts, tell_parents
from outlast.transfer.importer import MOVER, PARTS_SECONDS, Importer, Tree, check_unsealed
from outlast.transfer.tombstone import is_sealed

TRIES = 20
PAUSE_SECONDS = 0.1


async def gather(
    store: Store, run_id: str, progress: Callable[[int], None] | None = None
) -> list[Bundle]:
    """A run and its descendants, parents first, all as they were at one moment. One that goes on all
    the time is `Busy`: pause it first."""
    changed = run_id
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_SECONDS)
        family: list[Bundle] = []
        before: list[Run] = []
        async for run in _family(store, run_id):
            before.append(run)
            family.append(await load(store, run))
            if progress is not None:
                progress(len(family))
        trees: dict[str, list[Bundle]] = {}
        for cargo in family:
            trees.setdefault(root_of(cargo.run.id), []).append(cargo)
        for root, tree in trees.items():
            await load_facts(store, root, tree)
        after = [run async for run in _family(store, run_id)]
        if list(map(_state, before)) == list(map(_state, after)):
            return family
        changed = next(
            (a.id for a, b in zip(before, after, strict=False) if _state(a) != _state(b)), run_id
        )
    raise Busy(f"run {changed!r} changes all the time: pause it, or try again")


async def _family(store: Store, run_id: str) -> AsyncIterator[Run]:
    run = await store.get(run_id)
    if run.moved_to is not None and not is_sealed(run):
        raise Moved(run.id, run.moved_to)
    yield run
    children = [child.id async for child in store.find_all(RunQuery(parent=run.id))]
    for child in sorted(children):
        async for one in _family(store, child):
            yield one


def _state(run: Run) -> tuple[str, str, int, int]:
    return run.id, run.uid, run.revision, run.inbox


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
    cargos: list[Bundle],
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
    landing = Importer(store, progress)
    written = await landing.bring(list(trees.values()))
    await landing.settle(list(trees.values()))
    held = [one for one in cargos if not live and not one.run.status.terminal]
    steps = [task.queue for one in held for task in one.tasks]
    return Restored(len(ready), written, len(steps), tuple(sorted(set(steps))))


def _paused(cargo: Bundle, now: datetime) -> Bundle:
    if cargo.run.status.terminal:
        return cargo
    dead = [DeadTask(task, WAITS, now) for task in cargo.tasks]
    run = msgspec.structs.replace(cargo.run, status=Status.PAUSED, runnable_at=None)
    return replace(cargo, run=run, tasks=[], dead=[*cargo.dead, *dead])


def _alive(cargo: Bundle) -> Bundle:
    run = cargo.run
    busy = run.status in (Status.PENDING, Status.RUNNING) or run.owner is not None
    if run.status.terminal or not busy:
        return cargo
    return replace(cargo, run=msgspec.structs.replace(run, runnable_at=NOW))
