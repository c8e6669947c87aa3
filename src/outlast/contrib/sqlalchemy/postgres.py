"""The PostgreSQL store on an engine of the user's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.contrib.sqlalchemy.binding import Binding, Transaction
from outlast.contrib.sqlalchemy.sources import TransactionSource, joined, source_of
from outlast.contrib.sqlalchemy.transactions import ring_after, session_of, settle
from outlast.errors import ReadOnlyStore
from outlast.model.projection import Projection
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.borrowed import BorrowedStore
from outlast.stores.postgres.projecting import install


class SqlAlchemyPostgresStore(PostgresStore):
    """All that `PostgresStore` is, on the connections of an engine."""

    def __init__(
        self,
        binding: Binding,
        *,
        schema: str = "outlast",
        prefix: str = "",
        notify: bool = True,
        clock: Clock | None = None,
        projection: Projection | None = None,
    ) -> None:
        super().__init__(
            source_of(binding), schema=schema, prefix=prefix, notify=notify, clock=clock
        )
        self.binding = binding
        self._projection = projection
        self.plain_transactions = binding.loops is None

    async def open(self) -> None:
        await super().open()
        try:
            await self._prepare()
        except BaseException:
            await self.close()
            raise

    async def _prepare(self) -> None:
        server = self.database.server
        if server is not None and server.in_recovery:
            raise ReadOnlyStore(
                f"{self.binding.where} is a standby, which cannot be written: pass the engine of the "
                "primary, and keep the replica for reading"
            )
        if self._projection is not None:
            async with self.database.acquire() as link:
                await install(link, self._projection, self.database.queries)

    def sibling(self) -> PostgresStore | None:
        if self.binding.loops is not None:
            return None  # its connections belong to one loop
        queries = self.database.queries
        sibling = SqlAlchemyPostgresStore(
            self.binding,
            schema=queries.schema,
            prefix=queries.prefix,
            notify=False,
            clock=self._session.clock,
        )
        sibling._session.shift, sibling.notifier = self._session.shift, self.notifier
        return sibling

    def on(self, connection: Transaction) -> BorrowedStore:
        """This store inside the transaction of a Session, AsyncSession, or connection: starts, signals
        and tasks are committed, or not, with your own data."""
        transaction = joined(connection)
        ring_after(transaction, self.notifier)
        return _Borrowed(self, transaction)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        await self.open()
        async with session_of(self.binding) as session:
            yield session, self.on(session)


class _Borrowed(BorrowedStore):
    def __init__(self, store: SqlAlchemyPostgresStore, transaction: Transaction) -> None:
        super().__init__(store, TransactionSource(store.binding, transaction))
        self._transaction = transaction

    async def settle(self) -> None:
        await settle(self._transaction)
        await super().settle()
