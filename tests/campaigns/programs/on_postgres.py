"""One store on PostgreSQL for many cases: to connect takes longer than to run a case."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, NamedTuple

from outlast.ports.store import Store
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import VirtualClock
from tests.campaigns.programs.runner import ServerTime, new_clock
from tests.campaigns.programs.transactions import Effect
from tests.stores.postgres.places import FreshStore, wipe

MAKE = "CREATE TABLE IF NOT EXISTS @effects (run_id text, uid text, path text)"
WRITE = "INSERT INTO @effects VALUES ($1, $2, $3)"
STEPS = 40
"""Steps of workers that died keep their connections until the case is over."""


class _Reused(FreshStore):
    """A store that stays connected, and is emptied whenever it is opened again. It keeps the effects of
    transactional steps in a table of its own."""

    _is_used = False

    async def open(self) -> None:
        if self._is_used:
            return
        self._is_used = True
        if self.is_fresh:
            await wipe(self._session.database)
        else:
            await super().open()
            await self._ask(MAKE)
        await self._ask("DELETE FROM @effects")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        async with PostgresStore.transaction(self) as (connection, store):
            yield _Writer(connection, self.database.queries.render(WRITE)), store

    async def effects(self) -> list[Effect]:
        """All that was committed."""
        return [Effect(*row) for row in await self._ask("SELECT run_id, uid, path FROM @effects")]

    async def _ask(self, query: str) -> list[Any]:
        async with self.database.acquire() as connection:
            return list(await connection.fetch(self.database.queries.render(query)))

    async def close(self) -> None:
        """It stays open for the next case; its connections end with the process."""
        self._is_used = False


class _Writer(NamedTuple):
    connection: Any
    query: str

    async def write(self, effect: Effect) -> None:
        """It is there when the transaction is committed."""
        await self.connection.execute(self.query, *effect)


class Kept:
    """Makes a store for each case: always the same one, on the same clock."""

    @property
    def clock(self) -> VirtualClock:
        """The clock of all cases."""
        return _clock()

    def __call__(self, clock: VirtualClock) -> Store:
        return _store()


@cache
def _clock() -> VirtualClock:
    return new_clock()


@cache
def _store() -> _Reused:
    return _Reused(clock=ServerTime(_clock()), step_pool_size=STEPS)
