"""Importer: cargo becomes runs of a store. All of a family is there before any of it goes on.

A run that has not ended comes in held, under a token greater than any it had, and is let go when the
whole family has come. Whoever dies between finds its runs held by a mover, and goes on; a life that is
there is never brought again.

HeldFamily: what has come of a family is held until all of it has, however long that takes.

The hold is a lease like any other, and renewed while the mover lives. Of a mover that died it says how
long its runs wait for the next one: long where some of the family are missing, which would go on in
parts; not long where it came whole, for then nothing is amiss but that nobody has let go of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from outlast.errors import Busy, Refused, RunExists, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.ids import new_id
from outlast.model.run import Run
from outlast.ports.capabilities import Capability
from outlast.ports.store import Store
from outlast.transfer.bundle import LANDED, Bundle
from outlast.transfer.tombstone import is_sealed

MOST_AT_ONCE = 1000
TRIES = 50
PAUSE_SECONDS = 0.05

Tree = list[Bundle]


class Importer:
    """Brings families to one store."""

    def __init__(
        self,
        target: Store,
        progress: Callable[[int], None] | None = None,
        *,
        once: bool = False,
    ) -> None:
        self._target = target
        self._once = once
        self._owner = f"{MOVER}{new_id()}"
        self._progress = progress or (lambda runs: None)
        self._brought = 0

    async def bring(self, trees: list[Tree]) -> int:
        """Bring what is not there of a family, and hold it; how many runs."""
        # A child with an id of its own is looked for by its parent: it has to be there first.
        before = self._brought
        holding = HeldFamily(self._target, self._owner)
        for tree in reversed(trees):
            await self._bring_tree(tree, holding, is_all=len(trees) == 1)
        return self._brought - before

    async def settle(self, trees: list[Tree]) -> None:
        """Let go of what a mover holds of a family, children first."""
        for tree in reversed(trees):
            for cargo in reversed(tree):
                await self._settle(cargo)

    async def _bring_tree(self, tree: Tree, holding: HeldFamily, *, is_all: bool) -> None:
        if self._once:
            tree = [cargo for cargo in tree if not await self._has_landed(cargo)]
        if not tree:
            return
        await self._target.skip_tokens(max(cargo.token for cargo in tree))
        whole = WHOLE_SECONDS if is_all else PARTS_SECONDS
        if not await self._bring_at_once(tree, holding, UNMARKED_SECONDS if self._once else whole):
            ttl = whole if len(tree) == 1 else PARTS_SECONDS
            for cargo in tree:
                within = UNMARKED_SECONDS if self._once else ttl
                self._note(await self._bring_run(cargo, holding, within))
        if self._once:
            # Before anybody can go on with it, end it and delete it: then nothing else would tell
            # whoever repeats a move that was killed that it has come.
            for cargo in tree:
                if not cargo.run.status.terminal:
                    await self._target.remember(LANDED, cargo.landing_key, "")
            await holding.shorten(whole)
        for cargo in tree:
            for scope, key, value in cargo.keys:
                await self._target.remember(scope, key, value, run_id=cargo.run.id)

    async def _has_landed(self, cargo: Bundle) -> bool:
        """Whether this life has come before, and is not there any more or has gone on since. What had
        ended before it was moved runs no steps, wherever it is, and so may come again."""
        there = await self._target.find_one(cargo.run.id)
        is_there = there is not None and there.uid == cargo.run.uid
        if is_there or cargo.run.status.terminal:
            return False
        return await self._target.recall(LANDED, cargo.landing_key) is not None

    def _note(self, runs: int) -> None:
        self._brought += runs
        self._progress(self._brought)

    async def _bring_at_once(self, tree: Tree, holding: HeldFamily, ttl: float) -> bool:
        """A whole tree in one atomic batch, where the store can do that and nothing of it is there."""
        can = Capability.ATOMIC_BATCH in self._target.capabilities and 1 < len(tree) <= MOST_AT_ONCE
        if not can or await self._target.find_one(tree[0].run.id) is not None:
            return False
        commits = [cargo.arrival(self._owner, ttl, grave=None) for cargo in tree]
        try:
            outcomes = await self._target.commit(commits, atomic=True)
        except TryAgain:
            return False  # whether it happened is seen by looking at each
        came = [one for one in outcomes if isinstance(one, Committed)]
        if len(came) < len(tree):
            return False
        held = [one for one, commit in zip(came, commits, strict=True) if commit.hold is not None]
        await holding.keep(held, ttl)
        self._note(len(tree))
        return True

    async def _bring_run(self, cargo: Bundle, holding: HeldFamily, ttl: float) -> bool:
        run = cargo.run
        for attempt in range(TRIES):
            there = await self._target.find_one(run.id)
            check_unsealed(there)
            if there is not None and there.uid == run.uid:
                await holding.keep([there], ttl)
                return attempt > 0
            if there is not None and there.moved_to is None:
                raise RunExists(run.id, there.uid)
            await attempt_commit(self._target, cargo.arrival(self._owner, ttl, grave=there))
        raise Busy(f"run {run.id!r} could not be written: try again")

    async def _settle(self, cargo: Bundle) -> None:
        """If it cannot be let go of, the lease ends by itself, and what would have been consumed is taken
        for nothing by whoever drives the run."""
        for _ in range(TRIES):
            there = await self._target.find_one(cargo.run.id)
            if there is None or there.uid != cargo.run.uid or not is_held(there):
                return
            outcome = await attempt_commit(self._target, cargo.settling(there.token))
            if isinstance(outcome, Committed) and outcome.still_runnable:
                await self._target.release([claim_on(there)])


async def attempt_commit(store: Store, commit: Commit) -> Committed | Refused | TryAgain:
    """What becomes of a commit; one whose fate is unknown is looked at again by the caller."""
    try:
        (outcome,) = await store.commit([commit])
    except TryAgain as error:
        outcome = Busy(str(error))
    if isinstance(outcome, Busy):
        await asyncio.sleep(PAUSE_SECONDS)
    return outcome


def check_unsealed(there: Run | None) -> None:
    """Refuse to go where the run is sealed: what is there is not what it was last, or is not yet
    anywhere else."""
    if there is not None and is_sealed(there):
        raise Refused(
            f"run {there.id!r} is being moved from there to {there.moved_to}, which is unfinished: "
            "finish that move first"
        )


PARTS_SECONDS = 600.0
WHOLE_SECONDS = 60.0
UNMARKED_SECONDS = 86_400.0
"""What has come is held this long until it is on record that it has: as long as a lease can be."""
MOVER = "move-"


class HeldFamily:
    """What the one who brings a family holds of it."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._claims: list[Claim] = []
        self._renewed_at = store.clock.monotonic()

    async def keep(self, runs: Iterable[Run | Committed], seconds: float) -> None:
        """ClaimOnCreate runs that have come, and all that came before them, for as long as it takes."""
        new = [self._claim_on(run) for run in runs if not isinstance(run, Run) or is_held(run)]
        self._claims += new
        since = self._store.clock.monotonic() - self._renewed_at
        if since >= seconds / 3 or await self._is_old(new, seconds):
            await self._renew(seconds)

    async def shorten(self, seconds: float) -> None:
        """ClaimOnCreate what has come for so long only, from now on."""
        await self._renew(seconds)

    async def _is_old(self, claims: list[Claim], seconds: float) -> bool:
        """Whether another mover, who died, has held one of them for some time."""
        ends = [one.expires_at for one in claims if one.expires_at and one.owner != self._owner]
        return bool(ends) and min(ends) < await self._store.now() + timedelta(
            seconds=seconds * 2 / 3
        )

    async def _renew(self, seconds: float) -> None:
        asked = self._store.clock.monotonic()
        with suppress(TryAgain):  # the next run that comes is the next occasion
            found = await self._store.renew(self._claims, seconds)
            self._claims = [claim for claim in found if claim is not None]
            self._renewed_at = asked

    def _claim_on(self, run: Run | Committed) -> Claim:
        if isinstance(run, Run):
            return claim_on(run)
        now = self._store.clock.now()
        return Claim(
            owner=self._owner,
            token=run.token,
            claimed_at=now,
            expires_at=now,
            run_id=run.run_id,
            uid=run.uid,
        )


def is_held(run: Run) -> bool:
    """Whether somebody who brought a run here holds it still, because not all of its family came."""
    return run.owner is not None and run.owner.startswith(MOVER)


def claim_on(run: Run) -> Claim:
    """The claim that a mover, this one or another, has on a run that is held."""
    return Claim(
        owner=run.owner or MOVER,
        token=run.token,
        claimed_at=run.created_at,
        expires_at=run.claimed_until,
        run_id=run.id,
        uid=run.uid,
    )
