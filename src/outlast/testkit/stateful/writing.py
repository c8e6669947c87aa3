"""The rules of writing and claiming: commits of every shape, zombies, and time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec.structs import replace

from outlast.model.claim import Claim
from outlast.model.commit import Commit, Creation
from outlast.model.run import Status
from outlast.ports.port import Capability
from outlast.testkit.stateful.commit_pairs import CommitPairs
from outlast.testkit.stateful.recipes import (
    OWNERS,
    RECORDS,
    SECONDS,
    TASKS,
    TTLS,
    WORKFLOWS,
    Recipe,
    births,
    full_births,
    mixed,
    only,
    runs,
    words,
)
from outlast.testkit.stateful.world import LEFT, RIGHT

picks = st.integers(0, 40)
owners = st.sampled_from(OWNERS)
ttls = st.sampled_from(TTLS)


def has_claims(machine: CommitPairs) -> bool:
    """Whether anything has been claimed."""
    return bool(machine.claims or machine.task_claims)


def has_tasks(machine: CommitPairs) -> bool:
    """Whether a task has been claimed."""
    return bool(machine.task_claims)


class Writes(CommitPairs):
    """Commits, alone and in batches, and the same commit again."""

    @initialize(records=st.lists(st.integers(0, len(RECORDS) - 1), min_size=4, max_size=4))
    def begin(self, records: list[int]) -> None:
        """Most sequences would spend half their length on runs that do not exist."""
        recipes = [
            Recipe(run=run, create=Creation.NEW, record=record)
            for run, record in zip(("a", "a~1", "b", "c"), records, strict=True)
        ]
        self._submit(recipes)

    @rule(recipe=births)
    def start(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(recipe=full_births)
    def start_with_everything(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(recipe=mixed)
    def write(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(recipe=only("events", "repeat"))
    def append(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(recipe=only("consume", "seen", "release", "runnable", "status"))
    def park(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(recipe=only("tasks", "finish", "drops"))
    def hand_out(self, recipe: Recipe) -> None:
        self._submit([recipe])

    @rule(
        batch=st.lists(st.one_of(births, mixed), min_size=2, max_size=3, unique_by=lambda r: r.run),
        atomic=st.booleans(),
    )
    def write_several(self, batch: list[Recipe], atomic: bool) -> None:
        declared = all(Capability.ATOMIC_BATCH in store.capabilities for store in self.stores)
        self._submit(batch, atomic=atomic and declared)

    @rule(pick=picks)
    def write_again(self, pick: int) -> None:
        """The same commits once more, as after a lost answer."""
        left, right, atomic = self.sent[-1 - pick % min(len(self.sent), 4)]
        batches = (left, right)
        self.both(lambda side: self.stores[side].commit(batches[side], atomic=atomic))

    @rule(run=runs, status=st.sampled_from([Status.CANCELLED, Status.FAILED]))
    def terminate(self, run: str, status: Status) -> None:
        self._submit([Recipe(run=run, token="none", force=True, status=status, events=1)])

    def _submit(self, recipes: list[Recipe], *, atomic: bool = False) -> None:
        commit_pair = [self.commit_pair(recipe) for recipe in recipes]
        batches = [pair[LEFT] for pair in commit_pair], [pair[RIGHT] for pair in commit_pair]
        self._send_off(*batches, atomic=atomic)

    def _send_off(self, left: list[Commit], right: list[Commit], *, atomic: bool = False) -> None:
        batches = (left, right)
        self.sent.append((left, right, atomic))
        self.both(lambda side: self.stores[side].commit(batches[side], atomic=atomic))

    @invariant()
    def nothing_differs(self) -> None:
        self.compare()


class Claims(Writes):
    """Claims on runs and tasks, and time."""

    @rule(
        owner=owners,
        ttl=ttls,
        limit=st.integers(1, 3),
        workflows=st.none() | st.sets(st.sampled_from([*WORKFLOWS, ""])),
        run_ids=st.none() | st.sets(runs, min_size=1, max_size=3),
    )
    def claim(
        self,
        owner: str,
        ttl: float,
        limit: int,
        workflows: set[str] | None,
        run_ids: set[str] | None,
    ) -> None:
        self._claim(owner, ttl, limit=limit, workflows=workflows, run_ids=run_ids)

    @precondition(lambda self: bool(self.claims))
    @rule(pick=picks, owner=owners, deed=words("renew", "release", "commit"))
    def take_over(self, pick: int, owner: str, deed: str) -> None:
        """An owner is suspended past its lease, another one claims, and the zombie continues."""
        zombie = self.claims[-1 - pick % len(self.claims)]
        self.clock.advance(max(TTLS) + 1)
        self._claim(owner, TTLS[0], run_ids=[zombie[LEFT].run_id])
        if deed == "renew":
            self.both(lambda side: self.stores[side].renew([zombie[side]], TTLS[1]))
        elif deed == "release":
            self.both(lambda side: self.stores[side].release([zombie[side]]))
        else:
            commit_pair = self.commit_pair(Recipe(run=zombie[LEFT].run_id, events=1, entries=1))
            own = zip(commit_pair, zombie, strict=True)
            self._send_off(*([replace(one, token=claim.token)] for one, claim in own))

    def _claim(self, owner: str, ttl: float, **choice: Any) -> None:
        answers = self.done(lambda side: self.stores[side].claim_runs(owner, ttl, **choice))
        if answers is not None:
            pairs = zip(*answers, strict=True)
            self.claims += [(left.claim, right.claim) for left, right in pairs]

    @precondition(has_claims)
    @rule(pick=picks, ttl=ttls, tasks=st.booleans())
    def renew(self, pick: int, ttl: float, tasks: bool) -> None:
        if (held := self._pick(pick, tasks)) is not None:
            self.both(lambda side: self.stores[side].renew([held[side]], ttl))

    @precondition(has_claims)
    @rule(pick=picks, tasks=st.booleans())
    def extend(self, pick: int, tasks: bool) -> None:
        if (held := self._pick(pick, tasks)) is not None:
            self.both(lambda side: self.stores[side].extend(held[side], timedelta(seconds=7)))

    @precondition(has_claims)
    @rule(pick=picks, tasks=st.booleans())
    def release(self, pick: int, tasks: bool) -> None:
        if (held := self._pick(pick, tasks)) is not None:
            self.both(lambda side: self.stores[side].release([held[side]]))

    @rule(
        run=runs,
        task=st.sampled_from(TASKS),
        pick=st.none() | picks,
        owner=owners,
        ttl=st.none() | ttls,
    )
    def claim_task(
        self, run: str, task: tuple[str, str], pick: int | None, owner: str, ttl: float | None
    ) -> None:
        """One that is to be had, or any, which most often is not."""
        id = task[1]
        available = [one for one in self.dumps[LEFT].tasks if one.run_id]
        if pick is not None and available:
            chosen = available[pick % len(available)]
            run, id = chosen.run_id, chosen.id
        answers = self.done(lambda side: self.stores[side].claim_task(run, id, owner, ttl=ttl))
        if answers is not None:
            self._keep(*answers)

    @rule(
        run=runs,
        number=st.integers(0, len(TASKS) - 1),
        owner=owners,
        ttl=st.none() | ttls,
        deed=words("keep", "finish", "lose", "release"),
    )
    def work(self, run: str, number: int, owner: str, ttl: float | None, deed: str) -> None:
        """The life of a task in one go; by chance alone its parts seldom meet."""
        self._submit([Recipe(run=run, tasks=((number, 0, 0.0),))])
        known = len(self.task_claims)
        self.claim_task(run, TASKS[number], None, owner, ttl)
        if len(self.task_claims) == known:
            return
        if deed == "lose":
            self.clock.advance(max(TTLS) + 1)
            self.claim_task(run, TASKS[number], None, owner, ttl)
        if deed == "release":
            self.release(0, True)
        if deed != "keep":
            self.finish_task(len(self.task_claims) - 1 - known)

    @precondition(has_tasks)
    @rule(pick=picks)
    def finish_task(self, pick: int) -> None:
        """As `save_task_result` does: under the claim on the task, and on the run if it has one."""
        if (held := self._pick(pick, True)) is not None and held[LEFT].run_id:
            commit_pair = self.commit_pair(Recipe(run=held[LEFT].run_id, events=1))
            own = zip(commit_pair, held, strict=True)
            self._send_off(*([replace(one, uid=it.uid, finishes=(it,))] for one, it in own))

    @rule(seconds=st.sampled_from(SECONDS))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _pick(self, pick: int, tasks: bool) -> tuple[Claim, Claim] | None:
        pool = self.task_claims if tasks else self.claims
        return pool[-1 - pick % len(pool)] if pool else None

    def _keep(self, left: Claim | None, right: Claim | None) -> None:
        if left is not None and right is not None:
            self.task_claims.append((left, right))
