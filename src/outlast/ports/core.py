"""The core of the store port: what every adapter implements.

It is small: `commit`, `find_one`, `history`, `claim_runs`, `renew`, `release`. All else is optional
(`outlast.ports.optional`) and declared in `capabilities`; what is not declared raises `Unsupported`.
`outlast.ports.Store` adds what is written once.

For every method of the port:

- `timeout` is in seconds; None waits as long as it takes. When it passes before the store has
  done anything, `TimedOut` is raised. A write with an unknown outcome raises `UnknownOutcome`. After
  a cancellation the caller compares `Run.commit_id` with `Commit.id`.
- Time is the store's own (`now`): the server's clock, or the injected clock of memory and SQLite.
- Bad input raises a `UsageError` before anything is locked or written, and the store stays usable.
- A fault of the backend is never reported as "not found".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from types import TracebackType
from typing import ClassVar, NoReturn, Self

from outlast.errors import Unsupported
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Committed, Creation, Outcome
from outlast.model.commit_rules import wakeup_kind_of
from outlast.model.event import Event
from outlast.model.run import Run
from outlast.model.validation import check_batch
from outlast.ports.capabilities import COMMIT_CAPABILITIES, Capability, Durability
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier


class StoreCore(ABC):
    """The contract of every store, clause by clause."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    durability: Durability = Durability.NOTHING

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.notifier: Notifier = LocalNotifier()

    @property
    def durable(self) -> bool:
        """Whether an acknowledged commit survives the end of this process."""
        return self.durability > Durability.NOTHING

    # -- open and close -----------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, check that this is an outlast store and not of a newer outlast, and bring its schema
        up to date. Opening an open store does nothing."""

    async def close(self) -> None:
        """Disconnect. Later calls raise `StoreClosed`; closing twice is fine."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def now(self, *, timeout: float | None = None) -> datetime:
        """The store's time, which decides about leases, timers and `runnable_at`."""
        return self.clock.now()

    # -- the one write ------------------------------------------------------------------------

    @abstractmethod
    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        """Make commits durable, each all or nothing, and return their outcomes, in order.

        - At most one commit per run and batch (`InvalidCommit`).
        - Runs are locked without deadlocks: in the order of their ids, or without waiting. Refusals are
          decided under the lock, before anything is written, by `outlast.model.commit_rules`. A refusal
          is a value and does not affect the other commits of the batch. The outcome for a run that
          another transaction has locked may be `Busy`.
        - A commit whose id is the run's last one is a repetition: ``Committed(again=True)``.
        - Events are numbered from the run's last sequence on, without gaps, and stamped with the
          store's time where they have none, and with the claim's token.
        - After an exception the outcome of the batch is unknown: read `Run.commit_id` back.
        - With `atomic`, one refusal refuses all: the outcome of the others is `Busy` (capability
          ATOMIC_BATCH).
        """

    # -- reads --------------------------------------------------------------------------------

    @abstractmethod
    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        """The record of a run, or None if there is no such run."""

    @abstractmethod
    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:
        """The events with a sequence greater than `after`, in order, at most `limit`. Empty for
        an unknown run or past the end. A negative `after` is `InvalidValue`."""

    # -- claims -------------------------------------------------------------------------------

    @abstractmethod
    async def claim_runs(
        self,
        owner: str,
        ttl: float,
        *,
        limit: int = 1,
        workflows: Collection[str] | None = None,
        run_ids: Collection[str] | None = None,
        code: str | None = None,
        timeout: float | None = None,
    ) -> list[ClaimedRun]:
        """Claim up to `limit` available runs, those due longest first.

        Available: `runnable_at` has come, no live claim, not ended. `workflows` limits the search to
        workflows that the caller has, and `code`, the hash of their code, to runs that this code has
        not rejected (`Run.may_try`). `run_ids` claims exactly these, runnable or not, rejected or not,
        if no live claim holds them. Each claim gets a token greater than any that this store has given
        out, also to runs deleted since. Of concurrent claimers at most one gets a run; the others get
        other runs.
        """

    @abstractmethod
    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        """Set the lease of each claim, on a run or a task, to `ttl` from now. None where it was
        lost: the token is no longer current, the claim was released, or the run or task is gone.
        An expired claim is renewed unless another owner has claimed; one without lease stays so."""

    @abstractmethod
    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        """Release claims, so that other owners need not wait for the lease. False where a claim was
        lost. The token is never given out again; as after an expired lease, the old owner may write
        until another owner claims."""

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        """When the next unclaimed run becomes runnable, or None if none will by time alone. A hint for
        pollers: a store that cannot find it cheaply returns its present."""
        return await self.now(timeout=timeout)

    # -- for adapters -------------------------------------------------------------------------

    def check(self, commits: Sequence[Commit], *, atomic: bool = False) -> None:
        """What `commit` calls first: raise for bad input, and for undeclared capabilities."""
        check_batch(commits)
        if self.capabilities >= COMMIT_CAPABILITIES:
            return
        if atomic and len(commits) > 1:
            self._require(Capability.ATOMIC_BATCH)
        for commit in commits:
            for capability, part in _parts(commit):
                if part:
                    self._require(capability)

    def announce(
        self, commits: Sequence[Commit], outcomes: Sequence[Outcome] | None = None
    ) -> None:
        """What `commit` calls last: send the wake-ups of these commits. Without `outcomes` any of them
        may have been written."""
        kind = wakeup_kind_of(commits)
        if kind and outcomes is not None:
            commits = [
                commit
                for commit, outcome in zip(commits, outcomes, strict=True)
                if isinstance(outcome, Committed)
            ]
            kind = wakeup_kind_of(commits)
        if kind:
            sent = {send.run_id for commit in commits for send in commit.sends}
            self.notifier.wake(kind, runs=sent)

    def _require(self, capability: Capability) -> None:
        if capability not in self.capabilities:
            self._unsupported(capability)

    def _unsupported(self, capability: Capability) -> NoReturn:
        raise Unsupported(
            f"{type(self).__name__} does not support {capability.value!r}: "
            "its capabilities say what it can do; choose a store that declares it"
        )


def _parts(commit: Commit) -> list[tuple[Capability, object]]:
    return [
        (Capability.INBOX, commit.consumes or commit.sends),
        (Capability.CHILDREN, commit.starts),
        (Capability.TASKS, commit.tasks or commit.dead or commit.finishes or commit.drops),
        (Capability.TIMERS, commit.timers or commit.fired),
        (Capability.ENTRIES, commit.entries),
        (Capability.ACTIVITIES, commit.activities),
        (Capability.SNAPSHOTS, commit.snapshot),
        (Capability.FACTS, commit.facts),
        (Capability.DELETE, commit.creation is Creation.REPLACE),
    ]
