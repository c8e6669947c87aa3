"""Moves: all families that match go from one store to another, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime

from outlast.errors import InvalidValue, OutlastError, TryAgain, Unsupported
from outlast.model.ids import new_id
from outlast.model.run import MOVING, Run
from outlast.ports.capabilities import ALL_CAPABILITIES, Capability
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, parse
from outlast.transfer.mover import Mover
from outlast.transfer.tombstone import address_of, is_sealed
from outlast.urls import resolve

BATCH = 20
NEEDED = ALL_CAPABILITIES - {
    Capability.ATOMIC_BATCH,
    Capability.OWNER_GONE,
    Capability.WORKERS,
    Capability.RETENTION,
}


@dataclass
class Moves:
    """What became of a move: how many runs, in how many families, and which stayed where they were,
    with the reason."""

    runs: int = 0
    families: int = 0
    refused: dict[str, str] = field(default_factory=dict)


async def move(
    source: str | Store,
    target: str | Store,
    query: str = "",
    *,
    address: str | None = None,
    progress: Callable[[Moves], None] | None = None,
) -> Moves:
    """Move all runs that match, with their families, while workers run on both stores.

    ``await outlast.move("sqlite:///shop.db", "postgresql://…/shop", "status:open")``. Stores that
    are named by a URL are opened and closed here. `address` is what others are told, by default the
    URL of the target without its password. Killed or interrupted, it is simply called again.
    """
    if address is None:
        if not isinstance(target, str):
            raise InvalidValue("a target that is a store has no address: say address='…'")
        address = address_of(target)
    if isinstance(source, str) and address_of(source) == address:
        raise InvalidValue(f"source and target are both {address}: name another target")
    async with AsyncExitStack() as stack:
        opened = []
        for place in (source, target):
            store = resolve(place) if isinstance(place, str) else place
            opened.append(await stack.enter_async_context(store) if place is not store else store)
        return await move_runs(
            opened[0], opened[1], parse(query), address=address, progress=progress
        )


async def move_runs(
    source: Store,
    target: Store,
    query: Filter,
    *,
    address: str,
    now: datetime | None = None,
    progress: Callable[[Moves], None] | None = None,
) -> Moves:
    """The same between two open stores. What an earlier move to that address has left unfinished is
    finished first, whether it matches or not."""
    for store in (source, target):
        missing = sorted(NEEDED - store.capabilities)
        if missing:
            raise Unsupported(f"{type(store).__name__} cannot be moved from or to: {missing}")
    now = now or await source.now()
    mover, moves = Mover(source, target, address), Moves()
    seen: set[str] = set()
    batch: list[str] = []
    async for head in _heads(source, query, now):
        if head in seen:
            continue
        if not seen:
            await _check_apart(source, target, address)
        seen.add(head)
        batch.append(head)
        if len(batch) == BATCH:
            await _together(mover, batch, moves)
            batch = []
            if progress is not None:
                progress(moves)
    await _together(mover, batch, moves)
    return moves


async def _check_apart(source: Store, target: Store, address: str) -> None:
    """Refuse one store under two names, in which all would be deleted as if it had gone: what is
    written to the target must not be found in the source."""
    mark = new_id()
    await target.remember("move", mark, address)
    if await source.recall("move", mark) is not None:
        raise InvalidValue(
            f"source and target are the same store: nothing was moved. {address} is another name of "
            "the source, so name another target"
        )


async def _heads(source: Store, query: Filter, now: datetime) -> AsyncIterator[str]:
    """The heads of the families to be moved: first what was begun, then what matches."""
    begun = parse(f"status:cancelled wait:{MOVING}")
    for wanted in (begun, query):
        async for run in all_matching(source, wanted, now=now):
            if run.moved_to is None or is_sealed(run):
                yield await _head_of(source, run)


async def _head_of(source: Store, run: Run) -> str:
    """The topmost of the runs above one that are still in the store."""
    while run.parent is not None:
        above = await source.find_one(run.parent)
        if above is None or (above.moved_to is not None and not is_sealed(above)):
            break
        run = above
    return run.id


async def _together(mover: Mover, heads: list[str], moves: Moves) -> None:
    """Several families at once. Whoever is told to stop finishes those first."""
    work = asyncio.gather(*(mover.move(head) for head in heads), return_exceptions=True)
    try:
        outcomes = await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise
    for head, outcome in zip(heads, outcomes, strict=True):
        if isinstance(outcome, OutlastError) and not isinstance(outcome, TryAgain):
            moves.refused[head] = str(outcome)
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            moves.runs += outcome
            moves.families += bool(outcome)
