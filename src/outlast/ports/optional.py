"""What a store may do beyond its core, each declared in `capabilities`.

An adapter overrides what it can do. What it does not declare stays as it is here, and raises
`Unsupported`. What holds for every method of the port is said at the head of `outlast.ports.core`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.inbox import Item, Receipt, Send
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run, Status
from outlast.model.run_contents import Activity, Entry, Fact, RunContents, Timer
from outlast.model.snapshot import Snapshot
from outlast.model.task import Task
from outlast.model.worker import Worker
from outlast.ports.capabilities import Capability
from outlast.ports.core import StoreCore


class OptionalMethods(StoreCore):
    """The rest of the contract of a store, clause by clause."""

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

    async def owner_gone(self, owner: str, *, timeout: float | None = None) -> bool:
        """Whether the database can tell that `owner` has died (capability OWNER_GONE)."""
        self._unsupported(Capability.OWNER_GONE)

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
        """Items not yet consumed, in the order of their numbers (capability INBOX)."""
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
        self,
        run_id: str,
        *,
        uid: str | None = None,
        only_ended: bool = False,
        open_at: Mapping[str, str | None] | None = None,
        sends: Sequence[Send] = (),
        timeout: float | None = None,
    ) -> bool:
        """Remove a run with its descendants and all they own, in one atomic step, whoever holds
        it; whether it was there. With `uid` only that life: if another one has begun under the id, it
        stays. With `only_ended` a tree in which a run has not ended, or is being moved, is refused with
        `RunsOpen`, which names such runs; but a run that `open_at` names is removed although it is open,
        if its last commit is still the one with that id (None: any). `sends` are delivered in the same
        atomic step as the removal, or not at all. The id can be used again and starts fresh (capability
        DELETE)."""
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

    # -- transfer to another store --------------------------------------------------------------

    async def belongings(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        """What a run owns that no other method reads; empty for an unknown run
        (capability MOVE)."""
        self._unsupported(Capability.MOVE)

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        """Make sure that every token that this store object gives out from now on is greater than
        `above`, which another store has given out (capability MOVE)."""
        self._unsupported(Capability.MOVE)
