"""Gathering: a family as it is, read without being touched, to be kept in a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from outlast.errors import Busy, Moved
from outlast.model.ids import root_of
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.moving.cargo import Cargo, load, load_facts
from outlast.moving.sealing import is_sealed
from outlast.ports.store import Store

TRIES = 20
PAUSE_SECONDS = 0.1


async def gather(
    store: Store, run_id: str, progress: Callable[[int], None] | None = None
) -> list[Cargo]:
    """A run and its descendants, parents first, all as they were at one moment. One that goes on all
    the time is `Busy`: pause it first."""
    changed = run_id
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(PAUSE_SECONDS)
        family: list[Cargo] = []
        before: list[Run] = []
        async for run in _family(store, run_id):
            before.append(run)
            family.append(await load(store, run))
            if progress is not None:
                progress(len(family))
        trees: dict[str, list[Cargo]] = {}
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
