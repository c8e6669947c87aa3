"""SqliteStore: the store port in a file: commits, reads and claims."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from outlast.errors import StoreClosed
from outlast.model.claim import Claim, ClaimedRun
from outlast.model.commit import Commit, Outcome
from outlast.model.event import Event
from outlast.model.query import Page, RunQuery
from outlast.model.run import Run
from outlast.ports.capabilities import ALL_CAPABILITIES, Capability
from outlast.ports.clock import SteadyClock
from outlast.stores.sqlite import claims as claiming
from outlast.stores.sqlite import find
from outlast.stores.sqlite.commit import commit_all, rows_of
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.database import MAX_INLINE_ROWS, Session
from outlast.stores.sqlite.delete import SqliteTransfer
from outlast.stores.sqlite.driver_errors import Collision
from outlast.stores.sqlite.queue import SqliteQueue
from outlast.stores.sqlite.rows import to_events
from outlast.stores.sqlite.schema import query

if TYPE_CHECKING:
    from outlast.stores.sqlite.transaction import BorrowedStore

LOAD_HISTORY = query("load_history")
EVERYTHING = 2**62
log = logging.getLogger("outlast.sqlite")
MAX_INLINE_HISTORIES = 20
"""Histories that are read in the event loop; they are short as a rule."""


class SqliteStore(SqliteTransfer):
    """Everything in one file: ``SqliteStore("sqlite:///orders.db")``.

    Safe to use from several threads, event loops and processes at once. `synchronous` is "full"
    (a commit survives a power loss) or "normal" (it survives a crash of the process). `inline`
    allows small reads and fast commits in the event loop; False sends all to threads. A network
    filesystem is refused without `network_storage=True`. With a `prefix` for its tables the store
    can share the file of an application.
    """

    capabilities = ALL_CAPABILITIES - {Capability.OWNER_GONE}

    async def open(self) -> None:
        await self._session.open()
        if isinstance(self.clock, SteadyClock):
            last = await self._session.read(claiming.last_time, timeout=None)
            if not self.clock.heard(last):
                log.warning(
                    "the clock of this machine is %s behind the last time in %s: it was wrong then, or "
                    "is wrong now. Timers stay at the times that are recorded",
                    last - self.clock.now(),
                    self._session.database.path,
                )
                await self._session.write(
                    lambda db: claiming.end_impossible_claims(db, self.clock.now()), timeout=None
                )

    async def close(self) -> None:
        await self._session.close()

    def queue(self) -> SqliteQueue:
        return SqliteQueue(self._session.database, clock=self.clock, notifier=self.notifier)

    def sibling(self) -> SqliteStore:
        # The connections serve all threads, and user code never runs while one is held.
        database = self._session.database
        sibling = SqliteStore(database.path, clock=self.clock, prefix=database.prefix)
        sibling._session = Session(database, StoreClosed)
        sibling.notifier, sibling.durability = self.notifier, self.durability
        return sibling

    def on(self, connection: Connection) -> BorrowedStore:
        """This store inside a transaction of yours, on a connection to the same file: starts, signals
        and tasks are committed with your data, or not at all. Start it with BEGIN IMMEDIATE, and use
        the store before it ends."""
        from outlast.stores.sqlite.transaction import BorrowedStore, on_connection

        return BorrowedStore(self, on_connection(connection))

    def describe(self) -> dict[str, object]:
        """Version of SQLite and whether it has the WAL-reset race, modes, sizes, schema."""
        return self._session.database.describe()

    async def checkpoint(self, *, timeout: float | None = None) -> bool:
        """Copy the log into the file now, for instance before a backup; False if a reader held a part
        of it up. It happens by itself when the log has grown."""
        return await self._session.checkpoint(timeout=timeout)

    # -- the one write ------------------------------------------------------------------------

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        rows = rows_of(commits)

        def work(db: Connection, *, careful: bool = False) -> list[Outcome]:
            return commit_all(db, commits, self.clock.now(), atomic=atomic, careful=careful)

        written: list[Outcome] | None = None
        try:
            written = await self._session.write(work, rows=rows, timeout=timeout)
            return written
        except Collision:
            # An event id is recorded already, and nothing was written: look up which.
            written = await self._session.write(
                lambda db: work(db, careful=True), rows=rows, timeout=timeout
            )
            return written
        finally:
            # Also after a cancellation or a timeout: the write may still happen.
            self.announce(commits, written)

    # -- reads --------------------------------------------------------------------------------

    async def find_one(self, run_id: str, *, timeout: float | None = None) -> Run | None:
        return await self._session.read(lambda db: find.find_one(db, run_id), timeout=timeout)

    async def history(
        self,
        run_id: str,
        *,
        after: int = 0,
        limit: int | None = None,
        timeout: float | None = None,
    ) -> list[Event]:

        def rows(db: Connection, limit: int) -> list[Any]:
            return db.execute(LOAD_HISTORY, (run_id, after, limit)).fetchall()

        found = await self._session.read_page(
            rows, limit=EVERYTHING if limit is None else limit, timeout=timeout
        )
        return to_events(run_id, found)

    async def histories(
        self, run_ids: Collection[str], *, timeout: float | None = None
    ) -> dict[str, list[Event]]:

        def rows(db: Connection) -> dict[str, list[Any]]:
            return {
                run_id: db.execute(LOAD_HISTORY, (run_id, 0, EVERYTHING)).fetchall()
                for run_id in run_ids
            }

        found = await self._session.read(
            rows, timeout=timeout, small=len(run_ids) <= MAX_INLINE_HISTORIES
        )
        return {run_id: to_events(run_id, own) for run_id, own in found.items()}

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        return await self._session.read(
            lambda db: find.find(db, query), timeout=timeout, small=False
        )

    # -- claims -------------------------------------------------------------------------------

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
        request = claiming.ClaimRequest(limit, workflows, run_ids, code)
        # A read first: it is cheap, and keeps pollers away from the writer's lock.
        found = await self._session.read(
            lambda db: self._find_claimable(db, request),
            timeout=timeout,
            small=run_ids is None or len(run_ids) <= MAX_INLINE_ROWS,
        )
        if not found:
            return []
        return await self._session.write(
            lambda db: claiming.claim_runs(db, request, owner, ttl, self.clock.now()),
            rows=2 * len(found),
            timeout=timeout,
        )

    def _find_claimable(self, db: Connection, request: claiming.ClaimRequest) -> list[int]:
        self._session.check_file(db)
        if isinstance(self.clock, SteadyClock):
            # Another process on this machine may have recorded a later time.
            self.clock.heard(claiming.last_time(db))
        return claiming.find_claimable(db, request, self.clock.now())

    async def renew(
        self, claims: Sequence[Claim], ttl: float, *, timeout: float | None = None
    ) -> list[Claim | None]:
        return await self._session.write(
            lambda db: claiming.renew(db, claims, ttl, self.clock.now()),
            rows=len(claims),
            timeout=timeout,
        )

    async def release(self, claims: Sequence[Claim], *, timeout: float | None = None) -> list[bool]:
        released = await self._session.write(
            lambda db: claiming.release(db, claims), rows=len(claims), timeout=timeout
        )
        self.notifier.wake()
        return released

    async def next_runnable_at(self, *, timeout: float | None = None) -> datetime | None:
        return await self._session.read(claiming.next_runnable_at, timeout=timeout)
