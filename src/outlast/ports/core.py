"""The store port: what an adapter implements. `outlast.ports.Store` adds what is written once.

The required core is small: `commit`, `find_one`, `history`, `claim_runs`, `renew`, `release`. All
else is optional and declared in `capabilities`; what is not declared raises `Unsupported`.

For every method:

- `timeout` is in seconds; None waits as long as it takes. When it passes before the store has
  done anything, `TimedOut` is raised; a write whose fate is unknown then, and one that is
  cancelled by its caller, may or may not have happened, and raises `UnknownOutcome` or leaves the
  caller to settle it by `Commit.id`.
- Time is the store's own (`now`): a server's clock, or the injected one of memory and SQLite.
- Bad input raises a `UsageError` before anything is locked or written, and the store stays usable.
- A fault of the backend is never reported as "not there".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from types import TracebackType
from typing import ClassVar, NoReturn, Self

from outlast.errors import Unsupported
from outlast.model.activity import Activity
from outlast.model.belongings import Belongings
from outlast.model.checks import check_batch
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Creation, Outcome, Refusal
from outlast.model.decision import NO_NEWS, news_of
from outlast.model.entry import Entry
from outlast.model.event import Event
from outlast.model.fact import Fact
from outlast.model.inbox import Item, Receipt, Send
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run, Status
from outlast.model.snapshot import Snapshot
from outlast.model.task import Task
from outlast.model.timer import Timer
from outlast.model.worker import Worker
from outlast.ports.capability import COMMIT_CAPABILITIES, Capability, Durability
from outlast.ports.clock import Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier


class StoreCore(ABC):
    """The contract of a store, clause by clause."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    durability: Durability = Durability.NOTHING

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.notifier: Notifier = LocalNotifier()

    @property
    def durable(self) -> bool:
        """Whether an acknowledged commit survives the end of this process."""
        return self.durability > Durability.NOTHING

    # -- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, check that this is a store of ours and not of a newer outlast, and bring its
        schema up to date. Opening an open store does nothing."""

    async def close(self) -> None:
        """Give back what `open` took. Calls after it raise `StoreClosed`; closing twice is fine."""

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
        """The store's time, by which it judges leases, timers and `runnable_at`."""
        return self.clock.now()

    # -- the one write ------------------------------------------------------------------------

    @abstractmethod
    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        """Make commits durable, each all or nothing, and say what became of each, in order.

        - At most one commit per run and batch (`InvalidCommit`).
        - Runs are locked so that no two batches wait for each other: in the order of their ids, or
          without waiting at all. Every refusal is decided under the lock before anything is written,
          as `outlast.model.decision` has it. A refusal is a value, and does not touch the other
          commits of the batch. A run that is locked by somebody else may be answered with `Busy`.
        - A commit whose id is the run's last one has happened: ``Committed(again=True)``.
        - Events are numbered from the run's last sequence on, without gaps, and stamped with the
          store's time where they have none, and with the claim's token.
        - A batch that fails as a whole (an exception) is unknown: read `Run.commit_id` back.
        - With `atomic`, one refusal refuses all: the others are answered with `Busy`
          (capability ATOMIC_BATCH).
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
        timeout: float | None = None,
    ) -> list[ClaimedRun]:
        """Claim up to `limit` runs that are available, those due longest first.

        Available: `runnable_at` has come, no live claim, not ended. `workflows` keeps to runs
        whose code the caller has; `run_ids` claims exactly those, runnable or not, if nobody
        holds them. Each claim gets a token greater than any this store has given out, also to
        runs deleted since. Two claimers never get the same run; the loser simply gets others.
        """

    @abstractmethod
    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        """Set the lease of each claim, on a run or a task, to `ttl` from now. None where it was
        lost: the token is no longer current, the claim was released, or the run or task is gone.
        An expired claim that nobody has taken over is renewed; one without lease stays so."""

    @abstractmethod
    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        """Give claims back, so that others need not wait for the lease. False where it was lost.
        The token stays used: it is never given out again, and as after an expired lease, whoever
        held it may write until somebody else claims."""

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        """When the next run that nobody holds becomes runnable, or None if none will by itself.
        A hint for sleepers: a store that cannot tell cheaply answers with its present."""
        return await self.now(timeout=timeout)

    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        """Whether the database can tell that `owner` has died (capability OWNER_GONE)."""
        self._unsupported(Capability.OWNER_GONE)

    # -- finding ------------------------------------------------------------------------------

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        """Runs that match, in the order that is asked for: newest first with ties broken by the greater
        id, oldest first with the smaller, or by their last change. Filtered before the limit. The
        cursor of a page goes on after its last run (capability FIND)."""
        self._unsupported(Capability.FIND)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        """How many runs there are by workflow and status, exactly; pairs without a run are left out.
        The stores of outlast read no more than a few rows for each pair (capability FIND)."""
        self._unsupported(Capability.FIND)

    # -- workers ------------------------------------------------------------------------------

    async def present(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        """Take a worker's word that it lives, in place of its last one. It is due again within
        `ttl` seconds. The store sets the times. Workers silent for longer than a day are
        forgotten (capability WORKERS)."""
        self._unsupported(Capability.WORKERS)

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        """Take a worker off the list, because it stops; whether it was there
        (capability WORKERS)."""
        self._unsupported(Capability.WORKERS)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        """The workers that are present, or fell silent without having left, by start and owner
        (capability WORKERS)."""
        self._unsupported(Capability.WORKERS)

    # -- inbox --------------------------------------------------------------------------------

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        """Put items into inboxes and make their runs runnable now. Each gets the run's next
        number; an item id that this life of the run has taken before changes nothing and gives
        the receipt again. Refused: `NotFound`, `RunClosed`, `Fenced` for another life.

        `finishes` removes the tasks that the items are the results of, in the same atomic step;
        `keeps` lets claims on tasks have no end any more, except those of runs that have refused an
        item: their leases end as before. If one of those claims was lost, `Fenced` is raised and
        nothing is sent (capability INBOX; TASKS for `finishes` and `keeps`)."""
        self._unsupported(Capability.INBOX)

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        """Items not yet folded, in the order of their numbers (capability INBOX)."""
        self._unsupported(Capability.INBOX)

    # -- tasks --------------------------------------------------------------------------------

    async def claim_task(
        self,
        run_id: str,
        task_id: str,
        owner: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
    ) -> Claim | None:
        """Claim one task of a run. None if it is not to be had: claimed, not due, or not there.
        Without `ttl` the claim never expires (capability TASKS)."""
        self._unsupported(Capability.TASKS)

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        """Tasks that are due and unclaimed, in the order in which they should be done. Seeing
        one is no right to it: claim it (capability TASKS)."""
        self._unsupported(Capability.TASKS)

    # -- what a run owns ----------------------------------------------------------------------

    async def timers(self, run_id: str, *, timeout: float | None = None) -> list[Timer]:
        """All timers of a run, by time and id (capability TIMERS)."""
        self._unsupported(Capability.TIMERS)

    async def due_timers(
        self, *, now: datetime | None = None, limit: int = 100, timeout: float | None = None
    ) -> list[Timer]:
        """Unfired timers whose time has come, the oldest first (capability TIMERS)."""
        self._unsupported(Capability.TIMERS)

    async def entries(self, run_id: str, *, timeout: float | None = None) -> list[Entry]:
        """The audit lines recorded for a run, by time, then in the order of recording
        (capability ENTRIES)."""
        self._unsupported(Capability.ENTRIES)

    async def activities(self, run_id: str, *, timeout: float | None = None) -> list[Activity]:
        """The activity states saved for a run, by id (capability ACTIVITIES)."""
        self._unsupported(Capability.ACTIVITIES)

    async def find_activity(
        self, activity_id: str, *, timeout: float | None = None
    ) -> Activity | None:
        """One activity state, by its id alone, or None (capability ACTIVITIES)."""
        self._unsupported(Capability.ACTIVITIES)

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        """The last snapshot of a run, or None (capability SNAPSHOTS)."""
        self._unsupported(Capability.SNAPSHOTS)

    async def drop_snapshot(self, run_id: str, *, timeout: float | None = None) -> bool:
        """Remove the snapshot of a run; whether there was one (capability SNAPSHOTS)."""
        self._unsupported(Capability.SNAPSHOTS)

    async def snapshot_ids(
        self, *, after: str = "", limit: int = 1000, timeout: float | None = None
    ) -> list[str]:
        """The ids of runs that have a snapshot, in order, greater than `after`
        (capability SNAPSHOTS)."""
        self._unsupported(Capability.SNAPSHOTS)

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        """A fact of a tree, or, with no root, of the free namespace (capability FACTS)."""
        self._unsupported(Capability.FACTS)

    async def put_fact(self, fact: Fact, *, timeout: float | None = None) -> None:
        """Store a fact in the free namespace; storing it again changes nothing
        (capability FACTS). Facts of a tree are part of a commit."""
        self._unsupported(Capability.FACTS)

    async def drop_fact(self, hash: str, *, timeout: float | None = None) -> bool:
        """Remove a fact from the free namespace; whether it was there (capability FACTS)."""
        self._unsupported(Capability.FACTS)

    # -- idempotency keys ---------------------------------------------------------------------

    async def remember(
        self,
        scope: str,
        key: str,
        value: str,
        *,
        run_id: str | None = None,
        timeout: float | None = None,
    ) -> str | None:
        """Bind `key` to `value` unless it is bound: None if this call bound it, else the value
        it is bound to. One of many concurrent callers gets None. With `run_id` the key belongs
        to that run and is deleted with it (capability KEYS)."""
        self._unsupported(Capability.KEYS)

    async def recall(self, scope: str, key: str, *, timeout: float | None = None) -> str | None:
        """The value that `key` is bound to, or None (capability KEYS)."""
        self._unsupported(Capability.KEYS)

    # -- the end ------------------------------------------------------------------------------

    async def delete(
        self, run_id: str, *, uid: str | None = None, timeout: float | None = None
    ) -> bool:
        """Remove a run with its descendants and all they own, in one atomic step, whoever holds
        it; whether it was there. With `uid` only that life: if another one has begun under the id, it
        stays. The id can be used again and starts fresh (capability DELETE)."""
        self._unsupported(Capability.DELETE)

    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        """Delete up to `limit` trees whose root ended before `before` (with one of `status`, if
        given) and in which nothing lives any more, the oldest first; the ids of their roots. A live run,
        one that is being moved, and the child of one, is never touched (capability RETENTION)."""
        self._unsupported(Capability.RETENTION)

    # -- moving to another store --------------------------------------------------------------

    async def belongings(self, run_id: str, *, timeout: float | None = None) -> Belongings:
        """What a run owns that no other method reads; empty for an unknown run
        (capability MOVE)."""
        self._unsupported(Capability.MOVE)

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        """Make sure that every token that this store object gives out from now on is greater than
        `above`, which another store has given out (capability MOVE)."""
        self._unsupported(Capability.MOVE)

    # -- for adapters -------------------------------------------------------------------------

    def check(self, commits: Sequence[Commit], *, atomic: bool = False) -> None:
        """What `commit` calls first: refuse bad input, and parts that are not declared."""
        check_batch(commits)
        if self.capabilities >= COMMIT_CAPABILITIES:
            return
        if atomic and len(commits) > 1:
            self._require(Capability.ATOMIC_BATCH)
        for commit in commits:
            for capability, part in _parts(commit):
                if part:
                    self._require(capability)

    def announce(self, commits: Sequence[Commit]) -> None:
        """What `commit` calls last: ring, if somebody who waits may find something now."""
        news = NO_NEWS
        for found in filter(None, map(news_of, commits)):  # of most commits there are none
            news |= found
        if news:
            sent = {send.run_id for commit in commits for send in commit.sends}
            self.notifier.ring(news, runs=sent)

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
        (Capability.INBOX, commit.folds or commit.sends),
        (Capability.CHILDREN, commit.starts),
        (Capability.TASKS, commit.tasks or commit.dead or commit.finishes or commit.drops),
        (Capability.TIMERS, commit.timers or commit.fired),
        (Capability.ENTRIES, commit.entries),
        (Capability.ACTIVITIES, commit.activities),
        (Capability.SNAPSHOTS, commit.snapshot),
        (Capability.FACTS, commit.facts),
        (Capability.DELETE, commit.creation is Creation.REPLACE),
    ]
