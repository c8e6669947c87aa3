"""Runs that were moved to another store: whoever asks for one here is told where it is."""

from __future__ import annotations

from contextlib import suppress

from outlast.errors import Moved, NotFound, Undecodable
from outlast.model.ids import root_of
from outlast.model.run import Run
from outlast.ports.store import Store


async def find_here(store: Store, run_id: str, *, timeout: float | None = None) -> Run:
    """The record of a run; `Moved` if it goes on elsewhere, `NotFound` if nobody knows it."""
    run = await store.find_one(run_id, timeout=timeout)
    if run is None or run.moved_to is not None:
        await unless_moved(store, run_id, timeout=timeout)
    if run is None:
        raise NotFound("run", run_id)
    return run


async def unless_moved(store: Store, run_id: str, *, timeout: float | None = None) -> None:
    """Raise `Moved` if a run, or the tree that it belonged to, goes on elsewhere."""
    with suppress(Undecodable):  # a damaged record has not been moved
        for id in dict.fromkeys((run_id, root_of(run_id))):
            run = await store.find_one(id, timeout=timeout)
            if run is not None and run.moved_to is not None:
                raise Moved(run_id, run.moved_to)
