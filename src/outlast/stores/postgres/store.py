"""PostgresStore: the store port in PostgreSQL, put together from its parts, and the write of commits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from outlast.model.commit import Commit, Outcome
from outlast.ports.port import ALL_CAPABILITIES
from outlast.ports.store import Store
from outlast.stores.postgres.claims import PostgresClaims
from outlast.stores.postgres.commit import pack_commits, to_outcome
from outlast.stores.postgres.delete import PostgresDelete, PostgresTransfer
from outlast.stores.postgres.find import PostgresFind
from outlast.stores.postgres.inbox import PostgresInbox
from outlast.stores.postgres.queue import PostgresQueue
from outlast.stores.postgres.registry import PostgresRegistry
from outlast.stores.postgres.run_details import PostgresRunDetails
from outlast.stores.postgres.tasks import PostgresTasks

if TYPE_CHECKING:
    from outlast.stores.postgres.transaction import TransactionStore

MAX_BATCH = 1000
"""Commits in one statement: limits how long the next statement waits."""

MAX_LOCK_WAIT_S = 1.0
"""One wait for a lock inside the database, which occupies a connection."""
_lock_wait: ContextVar[float] = ContextVar("outlast_lock_wait", default=0.0)


class PostgresStore(
    PostgresFind,
    PostgresClaims,
    PostgresInbox,
    PostgresTasks,
    PostgresRunDetails,
    PostgresDelete,
    PostgresRegistry,
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

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        if not commits:
            await self._session.make_ready()
            return []
        for commit in commits:
            if commit.hold is not None:
                await self._session.register_owner(commit.hold.owner)
        step = len(commits) if atomic else MAX_BATCH
        written: list[Outcome] | None = None
        try:
            written = [
                outcome
                for start in range(0, len(commits), step)
                for outcome in await self._commit(
                    commits[start : start + step], atomic=atomic, timeout=timeout
                )
            ]
            return written
        finally:
            # Also after a cancellation or timeout: the commits may be written.
            self.announce(commits, written)

    async def _commit(
        self, commits: Sequence[Commit], *, atomic: bool, timeout: float | None
    ) -> list[Outcome]:
        name, wait = "commit", _lock_wait.get()
        packed = (*self._session.time, *pack_commits(commits, atomic=atomic))
        if wait > 0:
            # Of a batch only the receivers: a commit that is locked delays no other.
            ids = {send.run_id for commit in commits for send in commit.sends}
            if len(commits) == 1:
                ids.add(commits[0].run_id)
            name, packed = "commit_when_free", (*packed, list(ids), round(wait * 1000))
        found = await self._session.write(name, *packed, timeout=timeout)
        found.sort(key=itemgetter(0))
        return [to_outcome(commit, row) for commit, row in zip(commits, found, strict=True)]

    async def _commit_waiting(
        self, commits: Sequence[Commit], wait: float, timeout: float | None
    ) -> list[Outcome]:
        if timeout is not None:
            wait = min(wait, timeout / 2)  # a timeout of the call would leave its outcome unknown
        token = _lock_wait.set(min(wait, MAX_LOCK_WAIT_S))
        try:
            return await self.commit(commits, timeout=timeout)
        finally:
            _lock_wait.reset(token)
