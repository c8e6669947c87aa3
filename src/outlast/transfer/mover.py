"""Mover: takes a family of runs from one store to another, through all six steps.

How far it has come is marked at the source, with keys that belong to the head of the family and go
with it: what was there before anything was brought, and that all has come. Only so can whoever repeats
a move that was killed tell a run that has not come yet from one that came and has since gone on: begun
its next life, been deleted, or been moved to a third store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from outlast.errors import Busy, Moved, Refused, RunExists
from outlast.model.commit import Commit
from outlast.model.event import EventType
from outlast.model.event_data import payload_of
from outlast.model.ids import SEPARATOR, root_of
from outlast.model.payloads import WorkflowMoved
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.ports.store import Store
from outlast.transfer.bundle import ARRIVED, NOTED, Bundle, load, load_facts, tell_parents
from outlast.transfer.importer import TRIES, Importer, Tree, attempt_commit, check_unsealed, is_held
from outlast.transfer.tombstone import forgetting, is_sealed, sealing


class Mover:
    """Moves one family at a time."""

    def __init__(self, source: Store, target: Store, address: str) -> None:
        self._source = source
        self._target = target
        self._address = address
        self._landing = Importer(target, once=True)

    async def move(self, head: str) -> int:
        """Move a family; how many runs."""
        trees = await self._load(head)
        if not trees:
            return 0
        first = trees[0][0].run
        if await self._source.recall(ARRIVED, first.uid) is None:
            gone_on = await self._gone_on(first, trees)
            await self._landing.bring([tree for tree in trees if tree[0].run.id not in gone_on])
            await self._source.remember(ARRIVED, first.uid, self._address, run_id=first.id)
        await self._landing.settle(trees)
        anew = [await self._forget_tree(tree) for tree in reversed(trees)]
        for refusal in filter(None, anew):
            raise refusal
        return sum(map(len, trees))

    # -- here ---------------------------------------------------------------------------------

    async def _load(self, head: str) -> list[Tree]:
        """Seal a family and read it, by trees. What has ended is not sealed: until it is forgotten, it
        may be retried, replaced, or deleted, and is then read again."""
        for _ in range(TRIES):
            came = await self._has_come(head)
            async for run in self._family(head, self._source.find_one):
                await self._check(run, came=came)
            family = [run async for run in self._family(head, self._seal)]
            cargos = [await load(self._source, run) for run in family]
            trees: dict[str, Tree] = {}
            for cargo in cargos:
                trees.setdefault(root_of(cargo.run.id), []).append(cargo)
            for root, tree in trees.items():
                await load_facts(self._source, root, tree)
            now = [await self._source.find_one(run.id) for run in family]
            if [one and one.uid for one in now] == [run.uid for run in family]:
                tell_parents(cargos)
                return list(trees.values())
        raise Refused(f"run {head!r} is begun anew all the time: it was not moved, try again")

    async def _family(
        self, run_id: str, get: Callable[[str], Awaitable[Run | None]]
    ) -> AsyncIterator[Run]:
        """A run and its descendants, parents first: whoever is sealed begins no more children."""
        run = await get(run_id)
        if run is None or (run.moved_to is not None and not is_sealed(run)):
            return
        yield run
        children = [child.id async for child in self._source.find_all(RunQuery(parent=run.id))]
        for child in sorted(children):
            async for one in self._family(child, get):
                yield one

    async def _has_come(self, head: str) -> bool:
        run = await self._source.find_one(head)
        return run is not None and await self._source.recall(ARRIVED, run.uid) is not None

    async def _check(self, run: Run, *, came: bool) -> None:
        """Refuse a family, while nothing has changed, that cannot be there, or is not all here."""
        self._check_address(run)
        if is_held(run) and run.claimed_until and run.claimed_until > await self._source.now():
            raise Refused(
                f"run {run.id!r} is being brought here from another store, which is unfinished: "
                "finish that move or import first"
            )
        if came:
            return
        there = await self._target.find_one(run.id)
        check_unsealed(there)
        if SEPARATOR not in run.id:
            if there is not None and there.uid != run.uid and there.moved_to is None:
                raise RunExists(run.id, there.uid)

    def _check_address(self, run: Run) -> None:
        if run.moved_to is not None and run.moved_to != self._address:
            raise Moved(run.id, run.moved_to)

    async def _seal(self, run_id: str) -> Run | None:
        """Close a run where it is. The record as it is then; None if it is gone."""
        for attempt in range(TRIES):
            run = await self._source.find_one(run_id)
            if run is None or run.status.terminal:
                if run is not None and is_sealed(run):
                    self._check_address(run)  # another mover may have sealed it for elsewhere
                return run
            owned = await self._source.contents(run_id)
            timers = [one for one in await self._source.timers(run_id) if not one.fired]
            commit = sealing(run, owned, timers, self._address)
            await attempt_commit(self._source, commit)
            if attempt % 5 == 4:
                # Somebody is always faster: take the claim away first.
                fence = Commit(run_id=run_id, uid=run.uid, force=True)
                await attempt_commit(self._source, fence)
        raise Busy(f"run {run_id!r} changes all the time: it was not moved, try again")

    async def _forget_tree(self, tree: list[Bundle]) -> Refused | None:
        """Forget a tree that has come; why it was not forgotten, if it was begun anew."""
        try:
            # The root takes all below it along. What has failed below it may be retried until then, so
            # it goes before, the lowest first, each only if it is what was brought.
            for cargo in reversed(tree[1:]):
                if cargo.run.status is Status.FAILED:
                    await self._forget(cargo.run)
            await self._forget(tree[0].run)
        except Refused as refusal:
            return refusal
        return None

    async def _forget(self, brought: Run) -> None:
        """Leave one record in place of a run and all below it, if it is still what was brought."""
        for _ in range(TRIES):
            run = await self._source.find_one(brought.id)
            if run is not None:
                self._check_address(run)
            if run is None or (run.moved_to is not None and not is_sealed(run)):
                return
            if run.uid != brought.uid:
                raise Refused(
                    f"run {run.id!r} was begun anew while it was moved: what it was before is in the "
                    "other store, what it is now stays. Delete one of them before you move it again"
                )
            await attempt_commit(self._source, forgetting(run, self._address))
        raise Busy(f"run {brought.id!r} has arrived, but is not forgotten here: move it again")

    # -- there --------------------------------------------------------------------------------

    async def _gone_on(self, first: Run, trees: list[Tree]) -> set[str]:
        """The roots of trees that an earlier try has brought and that were moved on since: one record
        is left of them there, of this life, and it was not there when that try began."""
        graves = {}
        for tree in trees:
            there = await self._target.find_one(tree[0].run.id)
            if there is not None and there.moved_to is not None and not is_sealed(there):
                graves[there.id] = there.uid
        note = msgspec.json.encode(graves).decode()
        before = await self._source.remember(NOTED, first.uid, note, run_id=first.id)
        known = graves if before is None else msgspec.json.decode(before, type=dict[str, str])
        lives = {tree[0].run.id: tree[0].run.uid for tree in trees}
        return {
            root
            for root, uid in graves.items()
            if known.get(root) != uid and await self._life_in(root) == lives[root]
        }

    async def _life_in(self, root: str) -> str:
        """Which life a record that is left of a run stands for."""
        history = await self._target.history(root)
        if not history or history[-1].type != EventType.WORKFLOW_MOVED:
            return ""
        said = payload_of(history[-1])
        return said.life if isinstance(said, WorkflowMoved) else ""
