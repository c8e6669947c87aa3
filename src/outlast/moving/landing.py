"""Landing: cargo becomes runs of a store. All of a family is there before any of it goes on.

A run that has not ended comes in held, under a token greater than any it had, and is let go when the
whole family has come. Whoever dies between finds its runs held by a mover, and goes on; a life that is
there is never brought again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlast.errors import Busy, Refused, RunExists, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.ids import new_id
from outlast.model.run import Run
from outlast.moving.cargo import Cargo
from outlast.moving.sealing import is_sealed
from outlast.ports.capability import Capability
from outlast.ports.store import Store

HOLD_SECONDS = 600.0
MOST_AT_ONCE = 1000
TRIES = 50
PAUSE_SECONDS = 0.05
MOVER = "move-"

Tree = list[Cargo]


class Landing:
    """Brings families to one store."""

    def __init__(self, target: Store, progress: Callable[[int], None] | None = None) -> None:
        self._target = target
        self._owner = f"{MOVER}{new_id()}"
        self._progress = progress or (lambda runs: None)
        self._brought = 0

    async def bring(self, trees: list[Tree]) -> int:
        """Bring what is not there of a family, and hold it; how many runs."""
        # A child with an id of its own is looked for by its parent: it has to be there first.
        before = self._brought
        for tree in reversed(trees):
            await self._bring_tree(tree)
        return self._brought - before

    async def settle(self, trees: list[Tree]) -> None:
        """Let go of what a mover holds of a family, children first."""
        for tree in reversed(trees):
            for cargo in reversed(tree):
                await self._settle(cargo)

    async def _bring_tree(self, tree: Tree) -> None:
        await self._target.skip_tokens(max(cargo.token for cargo in tree))
        if not await self._bring_at_once(tree):
            for cargo in tree:
                self._note(await self._bring_run(cargo))
        for cargo in tree:
            for scope, key, value in cargo.keys:
                await self._target.remember(scope, key, value, run_id=cargo.run.id)

    def _note(self, runs: int) -> None:
        self._brought += runs
        self._progress(self._brought)

    async def _bring_at_once(self, tree: Tree) -> bool:
        """A whole tree in one atomic batch, where the store can do that and nothing of it is there."""
        can = Capability.ATOMIC_BATCH in self._target.capabilities and 1 < len(tree) <= MOST_AT_ONCE
        if not can or await self._target.find_one(tree[0].run.id) is not None:
            return False
        commits = [self._arrival(cargo) for cargo in tree]
        try:
            outcomes = await self._target.commit(commits, atomic=True)
        except TryAgain:
            return False  # whether it happened is seen by looking at each
        if not all(isinstance(one, Committed) for one in outcomes):
            return False
        self._note(len(tree))
        return True

    async def _bring_run(self, cargo: Cargo) -> bool:
        run = cargo.run
        for attempt in range(TRIES):
            there = await self._target.find_one(run.id)
            check_unsealed(there)
            if there is not None and there.uid == run.uid:
                return attempt > 0
            if there is not None and there.moved_to is None:
                raise RunExists(run.id, there.uid)
            await attempt_commit(self._target, self._arrival(cargo, grave=there))
        raise Busy(f"run {run.id!r} could not be written: try again")

    def _arrival(self, cargo: Cargo, grave: Run | None = None) -> Commit:
        return cargo.arrival(self._owner, HOLD_SECONDS, grave=grave)

    async def _settle(self, cargo: Cargo) -> None:
        """If it cannot be let go of, the lease ends by itself, and what would have been folded is taken
        for nothing by whoever drives the run."""
        for _ in range(TRIES):
            there = await self._target.find_one(cargo.run.id)
            if there is None or there.uid != cargo.run.uid or not is_held(there):
                return
            outcome = await attempt_commit(self._target, cargo.settling(there.token))
            if isinstance(outcome, Committed) and outcome.still_runnable:
                claim = Claim(
                    owner=there.owner or self._owner,
                    token=there.token,
                    claimed_at=await self._target.now(),
                    run_id=there.id,
                    uid=there.uid,
                )
                await self._target.release([claim])


async def attempt_commit(store: Store, commit: Commit) -> Committed | Refused | TryAgain:
    """What becomes of a commit; one whose fate is unknown is looked at again by the caller."""
    try:
        (outcome,) = await store.commit([commit])
    except TryAgain as error:
        outcome = Busy(str(error))
    if isinstance(outcome, Busy):
        await asyncio.sleep(PAUSE_SECONDS)
    return outcome


def is_held(run: Run) -> bool:
    """Whether somebody who brought a run here holds it still, because not all of its family came."""
    return run.owner is not None and run.owner.startswith(MOVER)


def check_unsealed(there: Run | None) -> None:
    """Refuse to go where the run is sealed: what is there is not what it was last, or is not yet
    anywhere else."""
    if there is not None and is_sealed(there):
        raise Refused(
            f"run {there.id!r} is being moved from there to {there.moved_to}, which is unfinished: "
            "finish that move first"
        )
