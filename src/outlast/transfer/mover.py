"""Mover: moves families of runs from one store to another, through the six steps of `outlast.transfer`.

The mover records its progress at the source, in keys that belong to the head of the family and are deleted
with it: which tombstones the target had before, and that the whole family has arrived. With these keys a
repeated move can tell a run that has not arrived yet from one that has arrived and has since started its
next life, been deleted, or been moved to a third store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from outlast._public import public
from outlast.errors import (
    Busy,
    InvalidValue,
    Moved,
    OutlastError,
    Refused,
    RunExists,
    TryAgain,
    Unsupported,
)
from outlast.model.commit import Commit
from outlast.model.event import EventType, payload_of
from outlast.model.ids import SEPARATOR, new_id, root_of
from outlast.model.payloads import WorkflowMoved
from outlast.model.query import RunQuery
from outlast.model.run import MOVING, Run, Status
from outlast.ports.port import ALL_CAPABILITIES, Capability
from outlast.ports.store import Store
from outlast.query import Filter, all_matching, parse
from outlast.transfer.bundle import (
    ARRIVED,
    TOMBSTONES_BEFORE,
    Bundle,
    deliver_child_outcomes,
    load,
    load_facts,
)
from outlast.transfer.importer import (
    TRIES,
    Importer,
    Tree,
    attempt_commit,
    check_not_moving,
    is_arriving,
)
from outlast.transfer.tombstone import (
    address_of,
    is_moving,
    is_tombstone,
    moving_commit,
    tombstone_commit,
)
from outlast.urls import resolve

BATCH = 20
NEEDED = ALL_CAPABILITIES - {
    Capability.ATOMIC_BATCH,
    Capability.OWNER_GONE,
    Capability.WORKERS,
    Capability.RETENTION,
}


@dataclass
class MoveResult:
    """How many runs were moved, in how many families, and the runs that were refused, with the reason."""

    runs: int = 0
    families: int = 0
    refused: dict[str, str] = field(default_factory=dict)


@public
async def move(
    source: str | Store,
    target: str | Store,
    query: str = "",
    *,
    address: str | None = None,
    progress: Callable[[MoveResult], None] | None = None,
) -> MoveResult:
    """Move all runs that match `query`, with their families, while workers run on both stores.

    ``await outlast.move("sqlite:///shop.db", "postgresql://…/shop", "status:open")``. Stores that are
    named by a URL are opened and closed here. Clients that ask for a moved run get `address`, by default
    the URL of the target without its password. Idempotent: after a crash, call it again.
    """
    if address is None:
        if not isinstance(target, str):
            raise InvalidValue("a target that is a store has no address: pass address='…'")
        address = address_of(target)
    if isinstance(source, str) and address_of(source) == address:
        raise InvalidValue(f"source and target are both {address}: name another target")
    async with AsyncExitStack() as stack:
        opened = []
        for given in (source, target):
            store = resolve(given) if isinstance(given, str) else given
            opened.append(await stack.enter_async_context(store) if given is not store else store)
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
    progress: Callable[[MoveResult], None] | None = None,
) -> MoveResult:
    """Move between two open stores. Unfinished moves to this address are finished first, whether they match
    or not."""
    for store in (source, target):
        missing = sorted(NEEDED - store.capabilities)
        if missing:
            raise Unsupported(
                f"runs cannot be moved from or to {type(store).__name__}, which lacks {missing}"
            )
    now = now or await source.now()
    mover, moves = Mover(source, target, address), MoveResult()
    seen: set[str] = set()
    batch: list[str] = []
    async for head in _family_heads(source, query, now):
        if head in seen:
            continue
        if not seen:
            await _check_distinct(source, target, address)
        seen.add(head)
        batch.append(head)
        if len(batch) == BATCH:
            await _move_batch(mover, batch, moves)
            batch = []
            if progress is not None:
                progress(moves)
    await _move_batch(mover, batch, moves)
    return moves


async def _check_distinct(source: Store, target: Store, address: str) -> None:
    """Refuse one store under two names, since burying would delete the only copy: a key that is written to
    the target must not be found in the source."""
    mark = new_id()
    await target.remember("move", mark, address)
    if await source.recall("move", mark) is not None:
        raise InvalidValue(
            f"source and target are the same store: nothing was moved. {address} is another name of "
            "the source; name another target"
        )


async def _family_heads(source: Store, query: Filter, now: datetime) -> AsyncIterator[str]:
    """The heads of the families to move: first of unfinished moves, then of runs that match."""
    unfinished = parse(f"status:cancelled wait:{MOVING}")
    for wanted in (unfinished, query):
        async for run in all_matching(source, wanted, now=now):
            if run.moved_to is None or is_moving(run):
                yield await _head_of(source, run)


async def _head_of(source: Store, run: Run) -> str:
    """The topmost ancestor of a run that is still in the store."""
    while run.parent is not None:
        above = await source.find_one(run.parent)
        if above is None or is_tombstone(above):
            break
        run = above
    return run.id


async def _move_batch(mover: Mover, heads: list[str], moves: MoveResult) -> None:
    """Move several families concurrently. On cancellation these are finished first."""
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


class Mover:
    """Moves one family at a time."""

    def __init__(self, source: Store, target: Store, address: str) -> None:
        self._source = source
        self._target = target
        self._address = address
        self._importer = Importer(target, once=True)

    async def move(self, head: str) -> int:
        """Move a family; returns the number of its runs."""
        trees = await self._load(head)
        if not trees:
            return 0
        first = trees[0][0].run
        if await self._source.recall(ARRIVED, first.uid) is None:
            moved_on = await self._moved_on(first, trees)
            await self._importer.write_family(
                [tree for tree in trees if tree[0].run.id not in moved_on]
            )
            await self._source.remember(ARRIVED, first.uid, self._address, run_id=first.id)
        await self._importer.release_family(trees)
        refusals = [await self._bury_tree(tree) for tree in reversed(trees)]
        for refusal in filter(None, refusals):
            raise refusal
        return sum(map(len, trees))

    # -- source -------------------------------------------------------------------------------

    async def _load(self, head: str) -> list[Tree]:
        """Mark a family as moving and read it, by trees. An ended run is not marked: until it is buried it may
        be retried, replaced or deleted, and is then read again."""
        for _ in range(TRIES):
            arrived = await self._has_arrived(head)
            async for run in self._family(head, self._source.find_one):
                await self._check(run, arrived=arrived)
            family = [run async for run in self._family(head, self._mark)]
            bundles = [await load(self._source, run) for run in family]
            trees: dict[str, Tree] = {}
            for bundle in bundles:
                trees.setdefault(root_of(bundle.run.id), []).append(bundle)
            for root, tree in trees.items():
                await load_facts(self._source, root, tree)
            now = [await self._source.find_one(run.id) for run in family]
            if [one and one.uid for one in now] == [run.uid for run in family]:
                deliver_child_outcomes(bundles)
                return list(trees.values())
        raise Refused(f"run {head!r} starts new lives all the time and was not moved: try again")

    async def _family(
        self, run_id: str, get: Callable[[str], Awaitable[Run | None]]
    ) -> AsyncIterator[Run]:
        """A run and its descendants, parents first: a run that is marked as moving starts no more children."""
        run = await get(run_id)
        if run is None or is_tombstone(run):
            return
        yield run
        children = [child.id async for child in self._source.find_all(RunQuery(parent=run.id))]
        for child in sorted(children):
            async for one in self._family(child, get):
                yield one

    async def _has_arrived(self, head: str) -> bool:
        run = await self._source.find_one(head)
        return run is not None and await self._source.recall(ARRIVED, run.uid) is not None

    async def _check(self, run: Run, *, arrived: bool) -> None:
        """Refuse a family, before anything changes, that has ids taken in the target or is not complete here."""
        self._check_address(run)
        if is_arriving(run) and run.claimed_until and run.claimed_until > await self._source.now():
            raise Refused(
                f"the move or import of run {run.id!r} into this store is unfinished: repeat that move "
                "or import first"
            )
        if arrived:
            return
        there = await self._target.find_one(run.id)
        check_not_moving(there)
        if SEPARATOR not in run.id:
            if there is not None and there.uid != run.uid and there.moved_to is None:
                raise RunExists(run.id, there.uid)

    def _check_address(self, run: Run) -> None:
        if run.moved_to is not None and run.moved_to != self._address:
            raise Moved(run.id, run.moved_to)

    async def _mark(self, run_id: str) -> Run | None:
        """Mark a run as moving. Returns its record then; None if the run is gone."""
        for attempt in range(TRIES):
            run = await self._source.find_one(run_id)
            if run is None or run.status.terminal:
                if run is not None and is_moving(run):
                    self._check_address(run)  # another mover may move it to another store
                return run
            contents = await self._source.contents(run_id)
            timers = [one for one in await self._source.timers(run_id) if not one.fired]
            commit = moving_commit(run, contents, timers, self._address)
            await attempt_commit(self._source, commit)
            if attempt % 5 == 4:
                # The owner commits faster than the mover reads: revoke its claim first.
                fence = Commit(run_id=run_id, uid=run.uid, force=True)
                await attempt_commit(self._source, fence)
        raise Busy(f"run {run_id!r} changes all the time and was not moved: try again")

    async def _bury_tree(self, tree: list[Bundle]) -> Refused | None:
        """Bury a tree that has arrived. Returns the refusal if one of its runs has started a new life."""
        try:
            # Burying the root deletes its tree. A failed descendant may be retried until then, so it is
            # buried first, the lowest level first, each only if it is still the life that was moved.
            for bundle in reversed(tree[1:]):
                if bundle.run.status is Status.FAILED:
                    await self._bury(bundle.run)
            await self._bury(tree[0].run)
        except Refused as refusal:
            return refusal
        return None

    async def _bury(self, moved: Run) -> None:
        """Replace a run and its descendants by a tombstone, if it is still the life that was moved."""
        for _ in range(TRIES):
            run = await self._source.find_one(moved.id)
            if run is not None:
                self._check_address(run)
            if run is None or is_tombstone(run):
                return
            if run.uid != moved.uid:
                raise Refused(
                    f"run {run.id!r} started a new life while it was moved: the old one is in the "
                    "other store, the new one stays here. Delete one of them, then move again"
                )
            await attempt_commit(self._source, tombstone_commit(run, self._address))
        raise Busy(
            f"run {moved.id!r} has arrived, but this store has no tombstone of it yet: move it again"
        )

    # -- target -------------------------------------------------------------------------------

    async def _moved_on(self, first: Run, trees: list[Tree]) -> set[str]:
        """The roots of trees that an earlier attempt has moved and that were moved on since: the target has a
        tombstone of this life that it did not have when that attempt started."""
        tombstones = {}
        for tree in trees:
            there = await self._target.find_one(tree[0].run.id)
            if there is not None and is_tombstone(there):
                tombstones[there.id] = there.uid
        note = msgspec.json.encode(tombstones).decode()
        before = await self._source.remember(TOMBSTONES_BEFORE, first.uid, note, run_id=first.id)
        known = tombstones if before is None else msgspec.json.decode(before, type=dict[str, str])
        lives = {tree[0].run.id: tree[0].run.uid for tree in trees}
        return {
            root
            for root, uid in tombstones.items()
            if known.get(root) != uid and await self._buried_life(root) == lives[root]
        }

    async def _buried_life(self, root: str) -> str:
        """The life for which a tombstone stands."""
        history = await self._target.history(root)
        if not history or history[-1].type != EventType.WORKFLOW_MOVED:
            return ""
        payload = payload_of(history[-1])
        return payload.life if isinstance(payload, WorkflowMoved) else ""
