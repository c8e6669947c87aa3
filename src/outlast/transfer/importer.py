"""Importer: bundles become runs of a store. The whole family arrives before any of its runs goes on.

A run that has not ended arrives claimed by the mover, under a token greater than any it had, and is
released when the whole family has arrived. The claim has a lease, which the mover renews while it lives.
After a crash of the mover the lease says how long the runs wait for the next one: long while a part of the
family is missing, since its runs would go on without the others; short when the family is complete and
only the release is missing. A life that has arrived is never written again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import msgspec

from outlast.errors import Busy, Moved, Refused, RunExists, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.ids import new_id, root_of
from outlast.model.run import Run, Status
from outlast.model.run_contents import DeadTask
from outlast.model.times import NOW
from outlast.model.validation import check_commit
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.transfer.bundle import ARRIVED_LIFE, Bundle, deliver_child_outcomes
from outlast.transfer.tombstone import is_moving

MAX_BATCH_RUNS = 1000
TRIES = 50
PAUSE_S = 0.05
PARTIAL_LEASE_S = 600.0
WHOLE_LEASE_S = 60.0
UNRECORDED_LEASE_S = 86_400.0
"""The lease of a run whose arrival is not recorded yet: the longest that a store accepts."""
MOVER = "move-"
IMPORTED_PAUSED = "imported paused: bring it back with `outlast dead redrive`"

Tree = list[Bundle]


@dataclass
class ImportResult:
    """How many runs a file has, how many of them were written, and how many queued steps wait as dead
    tasks, in which queues."""

    runs: int
    written: int
    waiting: int = 0
    queues: tuple[str, ...] = ()


async def import_runs(
    store: Store,
    bundles: list[Bundle],
    *,
    live: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ImportResult:
    """Write a family that `export_runs` has read; its head is the first bundle. Idempotent: after a crash,
    call it again. Nothing is written if the store has one of the ids as another life, or a tombstone of it.

    The original may still go on elsewhere. So a run that has not ended arrives paused, with its queued
    steps as dead tasks, unless it is imported `live`."""
    now = await store.now()
    deliver_child_outcomes(bundles)
    ready = [_runnable(one) if live else _paused(one, now) for one in bundles]
    for bundle in ready:
        check_commit(bundle.import_commit(MOVER, PARTIAL_LEASE_S, tombstone=None))
        there = await store.find_one(bundle.run.id)
        check_not_moving(there)
        if there is not None and there.moved_to is not None:
            raise Moved(there.id, there.moved_to)
        if there is not None and there.uid != bundle.run.uid:
            raise RunExists(there.id, there.uid)
    trees: dict[str, Tree] = {}
    for bundle in ready:
        trees.setdefault(root_of(bundle.run.id), []).append(bundle)
    importer = Importer(store, progress)
    written = await importer.write_family(list(trees.values()))
    await importer.release_family(list(trees.values()))
    paused = [one for one in bundles if not live and not one.run.status.terminal]
    steps = [task.queue for one in paused for task in one.tasks]
    return ImportResult(len(ready), written, len(steps), tuple(sorted(set(steps))))


class Importer:
    """Writes families to one store. With `once` it records which lives have arrived."""

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
        self._written = 0

    async def write_family(self, trees: list[Tree]) -> int:
        """Write and claim the runs of a family that the store does not have; returns how many."""
        # A parent looks up a child with an id of its own, so that child arrives first.
        before = self._written
        claims = ImportClaims(self._target, self._owner)
        for tree in reversed(trees):
            await self._write_tree(tree, claims, is_all=len(trees) == 1)
        return self._written - before

    async def release_family(self, trees: list[Tree]) -> None:
        """Release the runs of a family that a mover has claimed, children first."""
        for tree in reversed(trees):
            for bundle in reversed(tree):
                await self._release(bundle)

    async def _write_tree(self, tree: Tree, claims: ImportClaims, *, is_all: bool) -> None:
        if self._once:
            tree = [bundle for bundle in tree if not await self._has_arrived(bundle)]
        if not tree:
            return
        await self._target.skip_tokens(max(bundle.token for bundle in tree))
        whole = WHOLE_LEASE_S if is_all else PARTIAL_LEASE_S
        if not await self._write_batch(tree, claims, UNRECORDED_LEASE_S if self._once else whole):
            ttl = whole if len(tree) == 1 else PARTIAL_LEASE_S
            for bundle in tree:
                within = UNRECORDED_LEASE_S if self._once else ttl
                self._count(await self._write_run(bundle, claims, within))
        if self._once:
            # Recorded before the release: once a run goes on, it may end and be deleted, and a repeated
            # move has no other way to know that it has arrived.
            for bundle in tree:
                if not bundle.run.status.terminal:
                    await self._target.remember(ARRIVED_LIFE, bundle.arrival_key, "")
            await claims.shorten(whole)
        for bundle in tree:
            for scope, key, value in bundle.keys:
                await self._target.remember(scope, key, value, run_id=bundle.run.id)

    async def _has_arrived(self, bundle: Bundle) -> bool:
        """Whether this life has arrived before and the store does not have it any more. A run that ended
        before its move executes no steps, so it may be written again."""
        there = await self._target.find_one(bundle.run.id)
        is_there = there is not None and there.uid == bundle.run.uid
        if is_there or bundle.run.status.terminal:
            return False
        return await self._target.recall(ARRIVED_LIFE, bundle.arrival_key) is not None

    def _count(self, runs: int) -> None:
        self._written += runs
        self._progress(self._written)

    async def _write_batch(self, tree: Tree, claims: ImportClaims, ttl: float) -> bool:
        """Write a whole tree in one atomic batch; False if the store cannot, or has a part of it."""
        is_atomic = Capability.ATOMIC_BATCH in self._target.capabilities
        if not is_atomic or not 1 < len(tree) <= MAX_BATCH_RUNS:
            return False
        if await self._target.find_one(tree[0].run.id) is not None:
            return False
        commits = [bundle.import_commit(self._owner, ttl, tombstone=None) for bundle in tree]
        try:
            outcomes = await self._target.commit(commits, atomic=True)
        except TryAgain:
            return False  # unknown outcome: `_write_run` checks each run
        arrived = [one for one in outcomes if isinstance(one, Committed)]
        if len(arrived) < len(tree):
            return False
        both = zip(arrived, commits, strict=True)
        await claims.keep([one for one, commit in both if commit.hold is not None], ttl)
        self._count(len(tree))
        return True

    async def _write_run(self, bundle: Bundle, claims: ImportClaims, ttl: float) -> bool:
        run = bundle.run
        for attempt in range(TRIES):
            there = await self._target.find_one(run.id)
            check_not_moving(there)
            if there is not None and there.uid == run.uid:
                await claims.keep([there], ttl)
                return attempt > 0
            if there is not None and there.moved_to is None:
                raise RunExists(run.id, there.uid)
            await attempt_commit(
                self._target, bundle.import_commit(self._owner, ttl, tombstone=there)
            )
        raise Busy(f"run {run.id!r} was not written in {TRIES} attempts: try again")

    async def _release(self, bundle: Bundle) -> None:
        """Release one run. If that fails, its lease expires, and the run driver ignores the items that the
        release would have consumed."""
        for _ in range(TRIES):
            there = await self._target.find_one(bundle.run.id)
            if there is None or there.uid != bundle.run.uid or not is_arriving(there):
                return
            outcome = await attempt_commit(self._target, bundle.release_commit(there.token))
            if isinstance(outcome, Committed) and outcome.still_runnable:
                await self._target.release([claim_on(there)])


async def attempt_commit(store: Store, commit: Commit) -> Committed | Refused | TryAgain:
    """The outcome of a commit. After `TryAgain` the outcome is unknown and the caller reads the run."""
    try:
        (outcome,) = await store.commit([commit])
    except TryAgain as error:
        outcome = Busy(str(error))
    if isinstance(outcome, Busy):
        await asyncio.sleep(PAUSE_S)
    return outcome


def check_not_moving(there: Run | None) -> None:
    """Refuse to overwrite a run whose move to another store is unfinished."""
    if there is not None and is_moving(there):
        raise Refused(
            f"the move of run {there.id!r} from there to {there.moved_to} is unfinished: repeat that "
            "move first"
        )


class ImportClaims:
    """The claims on the runs of a family that have arrived, renewed while the import lasts."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner
        self._claims: list[Claim] = []
        self._renewed_at = store.clock.monotonic()

    async def keep(self, runs: Iterable[Run | Committed], seconds: float) -> None:
        """Add the claims on runs that have arrived, and renew all when a third of the lease is over."""
        new = [self._claim_on(run) for run in runs if not isinstance(run, Run) or is_arriving(run)]
        self._claims += new
        since = self._store.clock.monotonic() - self._renewed_at
        if since >= seconds / 3 or await self._expires_soon(new, seconds):
            await self._renew(seconds)

    async def shorten(self, seconds: float) -> None:
        """Set the lease of all claims to `seconds` from now."""
        await self._renew(seconds)

    async def _expires_soon(self, claims: list[Claim], seconds: float) -> bool:
        """Whether the lease of a claim by a mover that crashed is about to expire."""
        ends = [one.expires_at for one in claims if one.expires_at and one.owner != self._owner]
        return bool(ends) and min(ends) < await self._store.now() + timedelta(
            seconds=seconds * 2 / 3
        )

    async def _renew(self, seconds: float) -> None:
        asked = self._store.clock.monotonic()
        with suppress(TryAgain):  # the next run that arrives renews them
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


def is_arriving(run: Run) -> bool:
    """Whether a mover has claimed the run, because its family has not arrived completely."""
    return run.owner is not None and run.owner.startswith(MOVER)


def claim_on(run: Run) -> Claim:
    """The claim of a mover, this one or a crashed one, on a run."""
    return Claim(
        owner=run.owner or MOVER,
        token=run.token,
        claimed_at=run.created_at,
        expires_at=run.claimed_until,
        run_id=run.id,
        uid=run.uid,
    )


def _paused(bundle: Bundle, now: datetime) -> Bundle:
    if bundle.run.status.terminal:
        return bundle
    dead = [DeadTask(task, IMPORTED_PAUSED, now) for task in bundle.tasks]
    run = msgspec.structs.replace(bundle.run, status=Status.PAUSED, runnable_at=None)
    return replace(bundle, run=run, tasks=[], dead=[*bundle.dead, *dead])


def _runnable(bundle: Bundle) -> Bundle:
    run = bundle.run
    busy = run.status in (Status.PENDING, Status.RUNNING) or run.owner is not None
    if run.status.terminal or not busy:
        return bundle
    return replace(bundle, run=msgspec.structs.replace(run, runnable_at=NOW))
