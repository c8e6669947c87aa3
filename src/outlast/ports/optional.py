"""What a store may offer to the engine beyond its core. Each method belongs to a capability.

An adapter overrides the methods of the capabilities that it declares. The others raise
`Unsupported`. The head of `outlast.ports.core` says what holds for every method of the port.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from outlast.model.claim import Claim, Worker
from outlast.model.commit import Refusal
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run, Status
from outlast.model.run_contents import Fact, Item, Receipt, RunContents, Send, Task
from outlast.model.snapshot import Snapshot
from outlast.ports.capabilities import Capability
from outlast.ports.core import StoreCore


class OptionalMethods(StoreCore):
    """Search, workers, inbox, tasks, snapshots, facts, deletion, transfer."""

    # -- finding ------------------------------------------------------------------------------

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        """The runs that match, in the order of the query: newest first with ties broken by the
        greater id, oldest first by the smaller id, or by their last change. The limit applies
        after the filter. The cursor of a page continues after its last run (capability FIND)."""
        self._unsupported(Capability.FIND)

    async def counts(self, *, timeout: float | None = None) -> dict[tuple[str, Status], int]:
        """The exact number of runs by workflow and status; pairs without a run are left out. The
        cost does not grow with the number of runs (capability FIND)."""
        self._unsupported(Capability.FIND)

    # -- workers ------------------------------------------------------------------------------

    async def heartbeat(self, worker: Worker, ttl: float, *, timeout: float | None = None) -> None:
        """Record that a worker is alive, in place of its last heartbeat. The next one is due within
        `ttl` seconds. The store sets the times, and deletes workers without a heartbeat for a day
        (capability WORKERS)."""
        self._unsupported(Capability.WORKERS)

    async def leave(self, owner: str, *, timeout: float | None = None) -> bool:
        """Delete the record of a worker that stops; whether there was one (capability WORKERS)."""
        self._unsupported(Capability.WORKERS)

    async def workers(self, *, timeout: float | None = None) -> list[Worker]:
        """The workers that are alive, and those whose heartbeats ended without `leave`, by start
        and owner (capability WORKERS)."""
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
        """Put items into inboxes and make their runs runnable now. Each item gets the run's next
        number. Sending is idempotent: an item id that this life of the run has received before
        changes nothing and returns the same receipt. Refused: `NotFound`, `RunClosed`, and
        `Fenced` for another life.

        `finishes` removes the tasks whose results the items are, in the same atomic step. `keeps`
        removes the expiry of claims on tasks, except for runs that have refused an item. If one of
        these claims was lost, `Fenced` is raised and nothing is sent (capability INBOX; TASKS for
        `finishes` and `keeps`)."""
        self._unsupported(Capability.INBOX)

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        """Items not yet consumed, in the order of their numbers (capability INBOX)."""
        self._unsupported(Capability.INBOX)

    # -- tasks --------------------------------------------------------------------------------

    async def find_available_tasks(
        self, *, queue: str | None = None, limit: int = 1, timeout: float | None = None
    ) -> list[Task]:
        """Tasks that are due and unclaimed, in the order in which they are to be done. Only a claim
        gives the right to do one (capability TASKS)."""
        self._unsupported(Capability.TASKS)

    # -- snapshots and facts ------------------------------------------------------------------

    async def find_snapshot(self, run_id: str, *, timeout: float | None = None) -> Snapshot | None:
        """The last snapshot of a run, or None (capability SNAPSHOTS)."""
        self._unsupported(Capability.SNAPSHOTS)

    async def find_fact(
        self, hash: str, *, root: str = "", timeout: float | None = None
    ) -> Fact | None:
        """A fact of a tree of runs, or without `root` of the free namespace (capability FACTS)."""
        self._unsupported(Capability.FACTS)

    # -- deletion -----------------------------------------------------------------------------

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
        claim holds it; whether there was such a run. The id can be used again and starts afresh.

        With `uid`, only that life is deleted. With `only_ended`, a tree with runs that have not
        ended, or are being moved, raises `RunsOpen`, which names them; but an open run in `open_at`
        is deleted if its last commit is still the one given there (None: any). `sends` are
        delivered in the same atomic step as the deletion, or not at all (capability DELETE)."""
        self._unsupported(Capability.DELETE)

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
        self._unsupported(Capability.RETENTION)

    # -- transfer to another store --------------------------------------------------------------

    async def contents(self, run_id: str, *, timeout: float | None = None) -> RunContents:
        """The contents of a run that no other method reads; empty for an unknown run (capability
        MOVE)."""
        self._unsupported(Capability.MOVE)

    async def skip_tokens(self, above: int, *, timeout: float | None = None) -> None:
        """Make every token that this store object gives out from now on greater than `above`, a
        token of another store (capability MOVE)."""
        self._unsupported(Capability.MOVE)
