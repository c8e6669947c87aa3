"""StoreMethods: what a store implements. `outlast.ports.Store` adds what is written once over it.

Six methods are abstract: `commit`, `find_one`, `history`, `claim_runs`, `renew`, `release`. The others are
optional. Each belongs to a capability; a store that does not declare it in `capabilities` raises
`Unsupported`. What only engines of your own use stands apart, in `outlast.ports.custom_engine`.

For every method of the port:

- `timeout` is in seconds; None waits as long as it takes. When it passes before the store has
  done anything, `TimedOut` is raised. A write with an unknown outcome raises `UnknownOutcome`. After
  a cancellation the caller compares `Run.commit_id` with `Commit.id`.
- Time is the store's own (`now`): the server's clock, or the injected clock of memory and SQLite.
- Bad input raises a `UsageError` before anything is locked or written, and the store stays usable. The port
  checks it (`@checks`): an adapter gets valid arguments only.
- A fault of the backend is never reported as "not found".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, NoReturn

from outlast.errors import Busy, Unsupported
from outlast.model.claim import Claim, ClaimedRun, Worker
from outlast.model.commit import Commit, Committed, Creation, Outcome, Refusal
from outlast.model.commit_rules import wakeup_kind_of
from outlast.model.event import Event
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run, Status
from outlast.model.run_contents import Fact, Item, Receipt, RunContents, Send, Snapshot, Task
from outlast.model.validation import check_after, check_batch, check_send, check_worker
from outlast.ports.clock import Backoff, Clock, SystemClock
from outlast.ports.notifier import LocalNotifier, Notifier
from outlast.ports.port import (
    COMMIT_CAPABILITIES,
    Capability,
    Durability,
    Port,
    check_each,
    check_limit,
    check_owner,
    check_page,
    check_run_id,
    check_time,
    check_ttl,
    checks,
)

LOCK_PATIENCE_S = 30.0
"""How long a caller waits for a run that another transaction has locked, by default. It is bounded,
because the transaction may be the caller's own: a deadlock."""


def lock_backoff() -> Backoff:
    """The pauses between two tries to write a locked run."""
    return Backoff(0.01, 0.5)


def _check_commits(
    store: StoreMethods, commits: Sequence[Commit], *, atomic: bool = False, **_: object
) -> None:
    """Raise for bad input, and for parts of commits whose capability is not declared."""
    check_batch(commits)
    if store.capabilities >= COMMIT_CAPABILITIES:
        return
    needed = {capability for commit in commits for capability, part in _parts(commit) if part}
    if atomic and len(commits) > 1:
        needed.add(Capability.ATOMIC_BATCH)
    for capability in Capability:
        if capability in needed - store.capabilities:
            store.refuse_capability(capability)


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


class StoreMethods(Port):
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

    async def now(self, *, timeout: float | None = None) -> datetime:
        """The store's time, which decides about leases, timers and `runnable_at`."""
        return self.clock.now()

    # -- the one write ------------------------------------------------------------------------

    @abstractmethod
    @checks(_check_commits)
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
    @checks(run_id=check_run_id)
    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        """The record of a run, or None if there is no such run."""

    @abstractmethod
    @checks(run_id=check_run_id, after=check_after, limit=check_page)
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

    @checks(run_ids=check_each(check_run_id))
    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:
        """The whole histories of several runs, by id; empty for an unknown run. A store that can read
        them in one call overrides this."""
        return {run_id: await self.history(run_id, timeout=timeout) for run_id in run_ids}

    # -- claims -------------------------------------------------------------------------------

    @abstractmethod
    @checks(owner=check_owner, ttl=check_ttl, limit=check_limit)
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
    @checks(ttl=check_ttl)
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

    # -- finding ------------------------------------------------------------------------------

    @checks(query=RunQuery.check)
    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        """The runs that match, in the order of the query: newest first with ties broken by the
        greater id, oldest first by the smaller id, or by their last change. The limit applies
        after the filter. The cursor of a page continues after its last run (capability FIND)."""
        self.refuse_capability(Capability.FIND)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        """The exact number of runs by workflow and status; pairs without a run are left out. The
        cost does not grow with the number of runs (capability FIND)."""
        self.refuse_capability(Capability.FIND)

    # -- workers ------------------------------------------------------------------------------

    @checks(worker=check_worker, ttl=check_ttl)
    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        """Record that a worker is alive, in place of its last heartbeat. The next one is due within
        `ttl` seconds. The store sets the times, and deletes workers without a heartbeat for a day
        (capability WORKERS)."""
        self.refuse_capability(Capability.WORKERS)

    @checks(owner=check_owner)
    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        """Delete the record of a worker that stops; whether there was one (capability WORKERS)."""
        self.refuse_capability(Capability.WORKERS)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        """The workers that are alive, and those whose heartbeats ended without `leave`, by start
        and owner (capability WORKERS)."""
        self.refuse_capability(Capability.WORKERS)

    @checks(owner=check_owner)
    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        """Whether the database can tell that `owner` has died (capability OWNER_GONE)."""
        self.refuse_capability(Capability.OWNER_GONE)

    # -- inbox --------------------------------------------------------------------------------

    @checks(sends=check_each(check_send))
    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        """Put items into inboxes and make their runs runnable now. Each item gets the run's next
        number. Sending is idempotent: an item id that this life of the run has received before
        changes nothing and returns the same receipt. Refused: `NotFound`, `RunClosed`, and
        `Fenced` for another life.

        `finishes` removes the tasks whose results the items are, in the same atomic step. `keeps`
        removes the expiry of claims on tasks, except for runs that have refused an item. If one of
        these claims was lost, `Fenced` is raised and nothing is sent (capability INBOX; TASKS for
        `finishes` and `keeps`)."""
        self.refuse_capability(Capability.INBOX)

    @checks(after=check_after, limit=check_limit, run_id=check_run_id)
    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        """Items not yet consumed, in the order of their numbers (capability INBOX)."""
        self.refuse_capability(Capability.INBOX)

    # -- tasks --------------------------------------------------------------------------------

    @checks(limit=check_limit)
    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        """Tasks that are due and unclaimed, in the order in which they are to be done. Only a claim
        gives the right to do one (capability TASKS)."""
        self.refuse_capability(Capability.TASKS)

    # -- snapshots and facts ------------------------------------------------------------------

    @checks(run_id=check_run_id)
    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        """The last snapshot of a run, or None (capability SNAPSHOTS)."""
        self.refuse_capability(Capability.SNAPSHOTS)

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        """A fact of a tree of runs, or without `root` of the free namespace (capability FACTS)."""
        self.refuse_capability(Capability.FACTS)

    # -- deletion -----------------------------------------------------------------------------

    @checks(run_id=check_run_id)
    async def delete(
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        """Delete a run with its descendants and all that they own, in one atomic step, also while a
        claim holds it; whether there was such a run. The id can be used again, for a new life.

        With `uid`, only that life is deleted. With `only_ended`, a tree with runs that have not
        ended, or are being moved, raises `RunsOpen`, which names them; but an open run in `open_at`
        is deleted if its last commit is still the one given there (None: any). `sends` are
        delivered in the same atomic step as the deletion, or not at all (capability DELETE)."""
        self.refuse_capability(Capability.DELETE)

    @checks(limit=check_limit, before=check_time("before"))
    async def expire(
        self,
        before: datetime,
        *,
        status: Collection[Status] = (),
        limit: int = 100,
        timeout: float | None = None,
    ) -> list[str]:
        """Delete up to `limit` trees, the oldest first, whose root ended before `before` (with one
        of `status`, if given) and in which every run has ended. Returns the ids of the roots. Open
        runs, runs that are being moved, and their children are never deleted (capability
        RETENTION)."""
        self.refuse_capability(Capability.RETENTION)

    # -- transfer to another store --------------------------------------------------------------

    @checks(run_id=check_run_id)
    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        """The contents of a run that no other method reads; empty for an unknown run (capability
        MOVE)."""
        self.refuse_capability(Capability.MOVE)

    @checks(above=check_after)
    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        """Make every token that this store object gives out from now on greater than `above`, a
        token of another store (capability MOVE)."""
        self.refuse_capability(Capability.MOVE)

    # -- locked runs ------------------------------------------------------------------------

    async def commit_when_free(
        self,
        commits: Sequence[Commit],
        *,
        patience: float = LOCK_PATIENCE_S,
        timeout: float | None = None,
    ) -> list[Outcome]:
        """As `commit`, but waits up to `patience` seconds for runs that another transaction has
        locked; after that their outcome is `Busy`. `timeout` applies to each call of the store. A
        store that can wait inside its database overrides `_commit_waiting`."""
        deadline = self.clock.monotonic() + patience
        outcomes: list[Outcome] = [Busy("not tried")] * len(commits)
        open = list(range(len(commits)))
        backoff = lock_backoff()
        while True:
            left = max(deadline - self.clock.monotonic(), 0.0)
            part = [commits[i] for i in open]
            found: Sequence[Outcome]
            try:
                found = await self._commit_waiting(part, left, timeout)
            except Busy as busy:
                found = [busy] * len(part)
            for i, outcome in zip(open, found, strict=True):
                outcomes[i] = outcome
            open = [i for i in open if isinstance(outcomes[i], Busy)]
            left = deadline - self.clock.monotonic()
            if not open or left <= 0:
                return [locked(one, patience) if isinstance(one, Busy) else one for one in outcomes]
            await self.clock.sleep(min(backoff.next_s(), left))

    async def _commit_one(self, commit: Commit, timeout: float | None) -> Outcome:
        """The outcome of one commit; with a `timeout`, waits for a locked run that long."""
        if timeout is None:
            return (await self.commit([commit]))[0]
        return (await self.commit_when_free([commit], patience=timeout, timeout=timeout))[0]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        """`commit`, waiting up to `wait` seconds for locks inside the database if it can."""
        return await self.commit(commits, timeout=timeout)

    # -- for adapters -------------------------------------------------------------------------

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

    def inherited_files(self) -> Collection[int]:
        """Descriptors that step processes inherit: locks which show that the owner of their work is alive."""
        return ()

    def refuse_capability(self, capability: Capability) -> NoReturn:
        """Raise `Unsupported` for a capability that the store does not declare."""
        raise Unsupported(
            f"{type(self).__name__} does not support {capability.value!r}: "
            "its capabilities say what it can do; choose a store that declares it"
        )


def locked(busy: Busy, patience: float) -> Busy:
    """`Busy` after a wait of `patience` seconds, with what to do next."""
    if patience < 1:
        return busy
    return Busy(
        f"{str(busy).rstrip('.')}. Waited {patience:g} s: if a transaction of your own holds the lock "
        "(app.on(…), a transactional step), commit it first or make this call within it; else wait "
        "longer with a greater timeout"
    )
