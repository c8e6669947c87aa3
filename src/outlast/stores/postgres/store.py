"""PostgresStore: the store port in PostgreSQL, put together from its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from outlast.ports.port import ALL_CAPABILITIES
from outlast.ports.store import Store
from outlast.stores.postgres.claims import PostgresClaims
from outlast.stores.postgres.commit import PostgresCommit
from outlast.stores.postgres.delete import PostgresDelete
from outlast.stores.postgres.find import PostgresFind
from outlast.stores.postgres.inbox import PostgresInbox
from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.run_details import PostgresRunDetails
from outlast.stores.postgres.tasks import PostgresTasks
from outlast.stores.postgres.transfer import PostgresTransfer
from outlast.stores.postgres.workers import PostgresWorkers

if TYPE_CHECKING:
    from outlast.stores.postgres.transaction import TransactionStore


class PostgresStore(
    PostgresCommit,
    PostgresFind,
    PostgresClaims,
    PostgresInbox,
    PostgresTasks,
    PostgresRunDetails,
    PostgresDelete,
    PostgresWorkers,
    PostgresTransfer,
):
    """A store in one schema of a database: ``PostgresStore("postgresql://…/orders")``.

    `place` is a URL, or an asyncpg pool or connection of yours, which the store uses and never closes.
    Opening the store creates its tables in `schema`, with `prefix` before their names. To a URL the store
    opens up to `pool_size` connections, `step_pool_size` for transactions of steps, one for renewals and,
    unless `notify` is False or there is a pooler, one that listens for wake-ups. Leases and timers use the
    server's clock; tests pass a `clock`.
    """

    capabilities = ALL_CAPABILITIES
    batches_at_once = 2

    async def open(self) -> None:
        await self._session.open()
        server = self._session.database.server
        assert server is not None, "an open database knows its server"
        self.durability = server.durability

    async def close(self) -> None:
        await self._session.close()

    def queue(self) -> PostgresQueue:
        return PostgresQueue(self._session.database, clock=self.clock, notifier=self.notifier)

    def sibling(self) -> PostgresStore | None:
        database = self.database.sibling()
        if database is None:
            return None
        sibling = PostgresStore(database, clock=self._session.clock)
        sibling._session.shift, sibling.notifier = self._session.shift, self.notifier
        return sibling

    def on(self, connection: Any) -> TransactionStore:
        """This store inside your transaction on an asyncpg connection: starts, signals and tasks are
        committed, or rolled back, with your data. Use it before the transaction ends."""
        from outlast.stores.postgres.transaction import TransactionStore

        return TransactionStore(self, connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        await self.open()
        async with self.database.transaction() as connection:
            store = self.on(connection)
            store.end_of_step = self.database.end_of_step
            yield connection, store

    def describe(self) -> dict[str, object]:
        """Version and durability of the server, whether there is a pooler, schema, warnings."""
        return self.database.describe()
