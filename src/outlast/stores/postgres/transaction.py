"""A store in the user's transaction: its writes are committed, or rolled back, with the user's data.

All statements use the one connection. A refusal is a value and leaves the transaction intact. A run that is
written stays locked until the transaction ends; batches of other processes return `Busy` for it and
write the rest. The database sends a wake-up when the
transaction commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlast.errors import InvalidValue, WorkflowMisuse
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Outcome, Refusal
from outlast.model.commit_rules import wakeup_kind_of
from outlast.model.run_contents import Receipt, Send, Task
from outlast.ports.notifier import LocalNotifier
from outlast.stores.postgres.connection import ConnectionSource
from outlast.stores.postgres.database import Database
from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.store import PostgresStore


class TransactionStore(PostgresStore):
    """The result of `PostgresStore.on`, open as long as the transaction. `connection` is asyncpg's, or a
    `ConnectionSource` that lends a connection inside the transaction.
    """

    end_of_step = "check_constraints"

    def __init__(self, store: PostgresStore, connection: Any) -> None:
        if not isinstance(connection, ConnectionSource) and not connection.is_in_transaction():
            raise InvalidValue(
                "this connection is not in a transaction: use `async with connection.transaction():` "
                "around what is to be committed together"
            )
        outer = store.database
        database = Database(
            connection, schema=outer.queries.schema, prefix=outer.queries.prefix, notify=False
        )
        database.open_in_transaction(outer)
        super().__init__(database, clock=store.clock)
        self.durability = store.durability
        # No wake-up before the commit: the database sends it then.
        self.notifier = LocalNotifier()

    async def open(self) -> None:
        """Nothing to do: the transaction is open."""

    async def close(self) -> None:
        """Raises: it ends with the transaction."""
        raise WorkflowMisuse("a store in your transaction ends with it: commit or roll back")

    async def settle(self) -> None:
        await self.database.script(self.end_of_step)

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        outcomes = await super().commit(commits, atomic=atomic, timeout=timeout)
        if wakeup_kind_of(commits):
            await self._wake(timeout)
        return outcomes

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        receipts = await super().send(sends, finishes=finishes, keeps=keeps, timeout=timeout)
        await self._wake(timeout)
        return receipts

    def queue(self) -> PostgresQueue:
        return _TransactionQueue(self.database, clock=self.clock, notifier=self.notifier)

    async def _wake(self, timeout: float | None) -> None:
        await self._session.write(
            "notify_with_commit", *self.database.notify_address, timeout=timeout
        )


class _TransactionQueue(PostgresQueue):
    async def enqueue(
        self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0, timeout: float | None = None
    ) -> int:
        added = await super().enqueue(queue, tasks, delay=delay, timeout=timeout)
        address = self._session.database.notify_address
        await self._session.write("notify_with_commit", *address, timeout=timeout)
        return added
