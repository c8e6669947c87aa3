"""The PostgreSQL store on an engine of the user's."""

from __future__ import annotations

from outlast.contrib.sqlalchemy.binding import Binding, Transaction
from outlast.contrib.sqlalchemy.sources import TransactionSource, source_of
from outlast.contrib.sqlalchemy.transactions import JoiningStore, settle
from outlast.errors import ReadOnlyStore
from outlast.model.projection import Projection
from outlast.ports.clock import Clock
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.projection import install
from outlast.stores.postgres.transaction import TransactionStore


class SqlAlchemyPostgresStore(JoiningStore[TransactionStore], PostgresStore):
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
        self.bind(binding)
        self._projection = projection

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

    def _inside(self, transaction: Transaction) -> TransactionStore:
        return _Borrowed(self, transaction)


class _Borrowed(TransactionStore):
    def __init__(self, store: SqlAlchemyPostgresStore, transaction: Transaction) -> None:
        super().__init__(store, TransactionSource(store.binding, transaction))
        self._transaction = transaction

    async def settle(self) -> None:
        await settle(self._transaction)
        await super().settle()
