"""SqliteStore: the store port in a file, put together from its parts."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from outlast.errors import StoreClosed
from outlast.ports.clock import SteadyClock
from outlast.ports.port import ALL_CAPABILITIES
from outlast.stores.sqlite.claims import SqliteClaims, end_impossible_claims, last_time
from outlast.stores.sqlite.commit import SqliteCommit
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.delete import SqliteDelete
from outlast.stores.sqlite.find import SqliteFind
from outlast.stores.sqlite.inbox import SqliteInbox
from outlast.stores.sqlite.queue import SqliteQueue
from outlast.stores.sqlite.run_details import SqliteRunDetails
from outlast.stores.sqlite.session import Session
from outlast.stores.sqlite.tasks import SqliteTasks
from outlast.stores.sqlite.transfer import SqliteTransfer
from outlast.stores.sqlite.workers import SqliteWorkers

if TYPE_CHECKING:
    from outlast.stores.sqlite.transaction import TransactionStore

log = logging.getLogger("outlast.sqlite")


class SqliteStore(
    SqliteCommit,
    SqliteFind,
    SqliteClaims,
    SqliteInbox,
    SqliteTasks,
    SqliteRunDetails,
    SqliteDelete,
    SqliteWorkers,
    SqliteTransfer,
):
    """Everything in one file: ``SqliteStore("sqlite:///orders.db")``.

    Safe to use from several threads, event loops and processes at once. `synchronous` is "full"
    (a commit survives a power loss) or "normal" (it survives a crash of the process). `inline`
    allows small reads and fast commits in the event loop; False sends all to threads. A network
    filesystem is refused without `network_storage=True`. With a `prefix` for its tables the store
    can share the file of an application.
    """

    capabilities = ALL_CAPABILITIES

    async def open(self) -> None:
        await self._session.open()
        if isinstance(self.clock, SteadyClock):
            last = await self._session.read(last_time, timeout=None)
            if not self.clock.heard(last):
                log.warning(
                    "the clock of this machine is %s behind the last time in %s: it was wrong then, or "
                    "is wrong now. Timers stay at the times that are recorded",
                    last - self.clock.now(),
                    self._session.database.path,
                )
                await self._session.write(
                    lambda db: end_impossible_claims(db, self.clock.now()), timeout=None
                )

    async def close(self) -> None:
        await self._session.close()

    def queue(self) -> SqliteQueue:
        return SqliteQueue(self._session.database, clock=self.clock, notifier=self.notifier)

    def inherited_files(self) -> Collection[int]:
        return self._session.database.liveness.files

    def sibling(self) -> SqliteStore:
        # The connections serve all threads, and user code never runs while one is held.
        database = self._session.database
        sibling = SqliteStore(database.path, clock=self.clock, prefix=database.prefix)
        sibling._session = Session(database, StoreClosed)
        sibling.notifier, sibling.durability = self.notifier, self.durability
        return sibling

    def on(self, connection: Connection) -> TransactionStore:
        """This store inside a transaction of yours, on a connection to the same file: starts, signals
        and tasks are committed with your data, or not at all. Start it with BEGIN IMMEDIATE, and use
        the store before it ends."""
        from outlast.stores.sqlite.transaction import TransactionStore, on_connection

        return TransactionStore(self, on_connection(connection))

    def describe(self) -> dict[str, object]:
        """Version of SQLite and whether it has the WAL-reset race, modes, sizes, schema."""
        return self._session.database.describe()

    async def checkpoint(self, *, timeout: float | None = None) -> bool:
        """Copy the log into the file now, for instance before a backup; False if a reader held a part
        of it up. It happens by itself when the log has grown."""
        return await self._session.checkpoint(timeout=timeout)
