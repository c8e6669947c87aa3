"""Mover: takes a family of runs from one store to another, through all five steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from outlast.errors import Busy, Moved, Refused, RunExists, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.ids import SEPARATOR, new_id, root_of
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.moving.cargo import Cargo, load, load_facts, tell_parents
from outlast.moving.sealing import forgetting, is_sealed, sealing
from outlast.ports.store import Store

HOLD_SECONDS = 60.0
TRIES = 50
PAUSE_SECONDS = 0.05
MOVER = "move-"


class Mover:
    """Moves one family at a time."""

    def __init__(self, source: Store, target: Store, address: str) -> None:
        self._source = source
        self._target = target
        self._address = address
        self._owner = f"{MOVER}{new_id()}"

    async def move(self, head: str) -> int:
        """Move a family; how many runs."""
        trees = await self._load(head)
        # A child with an id of its own is looked for by its parent: it has to be there first.
        anew = [await self._move_tree(tree) for tree in reversed(trees)]
        for refusal in filter(None, anew):
            raise refusal
        return sum(map(len, trees))

    async def _load(self, head: str) -> list[list[Cargo]]:
        """Seal a family and read it, by trees. What has ended is not sealed: until it is forgotten, it
        may be retried, replaced, or deleted, and is then read again."""
        for _ in range(TRIES):
            async for run in self._family(head, self._found):
                await self._check(run)
            family = [run async for run in self._family(head, self._seal)]
            cargos = [await load(self._source, run) for run in family]
            trees: dict[str, list[Cargo]] = {}
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

    async def _found(self, run_id: str) -> Run | None:
        return await self._source.find_one(run_id)

    async def _check(self, run: Run) -> None:
        """Refuse a family, while nothing has changed, that cannot be there."""
        self._check_address(run)
        there = await self._target.find_one(run.id)
        _check_unsealed(there)
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
            owned = await self._source.belongings(run_id)
            timers = [one for one in await self._source.timers(run_id) if not one.fired]
            commit = sealing(run, owned, timers, self._address)
            await self._try(self._source, commit)
            if attempt % 5 == 4:
                # Somebody is always faster: take the claim away first.
                fence = Commit(run_id=run_id, uid=run.uid, force=True)
                await self._try(self._source, fence)
        raise Busy(f"run {run_id!r} changes all the time: it was not moved, try again")

    async def _move_tree(self, tree: list[Cargo]) -> Refused | None:
        """Bring a tree and forget it here; why it was not forgotten, if it was begun anew."""
        await self._target.skip_tokens(max(cargo.token for cargo in tree))
        claims = [await self._arrive(cargo) for cargo in tree]
        for cargo in tree:
            await self._bring_the_rest(cargo)
        for cargo, claim in reversed(list(zip(tree, claims, strict=True))):
            if claim is not None:
                await self._settle(cargo, claim)
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

    async def _arrive(self, cargo: Cargo) -> Claim | None:
        """Bring a run. The mover's claim on it, or that of another mover who brought it and died;
        None if it is there and goes on, or has ended."""
        run = cargo.run
        for _ in range(TRIES):
            there = await self._target.find_one(run.id)
            _check_unsealed(there)
            if there is not None and there.uid == run.uid:
                if there.owner is None or not there.owner.startswith(MOVER):
                    return None
                return await self._claim_on(there, there.owner)
            if there is not None and there.moved_to is None:
                raise RunExists(run.id, there.uid)
            commit = cargo.arrival(self._owner, HOLD_SECONDS, over_a_grave=there is not None)
            await self._try(self._target, commit)
        raise Busy(f"run {run.id!r} could not be written: it is sealed, move it again")

    async def _claim_on(self, run: Run, owner: str) -> Claim:
        now = await self._target.now()
        return Claim(owner=owner, token=run.token, claimed_at=now, run_id=run.id, uid=run.uid)

    async def _bring_the_rest(self, cargo: Cargo) -> None:
        """What is no part of a commit. Each can be brought twice."""
        run_id = cargo.run.id
        for scope, key, value in cargo.keys:
            await self._target.remember(scope, key, value, run_id=run_id)
        for task, reason in cargo.dead:
            claim = await self._target.claim_task(run_id, task.id, self._owner, ttl=HOLD_SECONDS)
            if claim is not None:
                async with self._target.queue() as queue:
                    await queue.nack(claim, requeue=False, reason=reason)

    async def _settle(self, cargo: Cargo, claim: Claim) -> None:
        """Let go of a run. If that fails, the mover's lease ends by itself, and what it would have
        folded is taken for nothing by whoever drives the run."""
        outcome = await self._try(self._target, cargo.settling(claim.token))
        if isinstance(outcome, Committed) and outcome.still_runnable:
            await self._target.release([claim])

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
            await self._try(self._source, forgetting(run, self._address))
        raise Busy(f"run {brought.id!r} has arrived, but is not forgotten here: move it again")

    async def _try(self, store: Store, commit: Commit) -> Committed | Refused | TryAgain:
        """What becomes of a commit; one whose fate is unknown is looked at again by the caller."""
        try:
            (outcome,) = await store.commit([commit])
        except TryAgain as error:
            outcome = Busy(str(error))
        if isinstance(outcome, Busy):
            await asyncio.sleep(PAUSE_SECONDS)
        return outcome


def _check_unsealed(there: Run | None) -> None:
    """Refuse to go where the run is sealed: what is there is not what it was last, or is not yet
    anywhere else."""
    if there is not None and is_sealed(there):
        raise Refused(
            f"run {there.id!r} is being moved from there to {there.moved_to}, which is unfinished: "
            "finish that move first"
        )
