"""Connections of our own: some stay in hand, nobody waits in vain, a dead one is replaced."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import psycopg
import pytest

from outlast.errors import TimedOut, TryAgain
from outlast.model import Claim
from outlast.stores.postgres import PostgresStore, connection
from outlast.stores.postgres.connection import KEPT_CONNECTIONS, OwnPool
from outlast.stores.postgres.psycopg import PsycopgConnection
from tests.stores.postgres.places import FreshStore, ask, direct
from tests.unit.testkit.faults.proxy import Proxy

pytestmark = pytest.mark.server


def pool_of(store: FreshStore) -> OwnPool:
    """Where its statements find connections."""
    source = store.database._main
    assert isinstance(source, OwnPool)
    return source


async def test_a_connection_is_kept() -> None:
    """Calls one after the other use one connection, which is not given back in between; of many that
    were used at once, a few stay."""
    async with FreshStore(pool_size=KEPT_CONNECTIONS + 2) as store:
        source = pool_of(store)
        await store.now()
        [(kept, _)] = source.kept
        await store.now()
        assert [one for one, _ in source.kept] == [kept]
        await asyncio.gather(*(store.now() for _ in range(KEPT_CONNECTIONS + 2)))
        assert 1 <= len(source.kept) <= KEPT_CONNECTIONS
    assert source.kept == []


async def test_a_cancellation_that_psycopg_swallows_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Python 3.11 `asyncio.wait_for` returns normally if a cancellation arrives together with the data. The
    caller is cancelled nevertheless: whatever cancelled it waits for its end."""

    class Cursor:
        description = None

        def __init__(self, *args: object, **options: object) -> None: ...

        async def execute(self, *args: object, **options: object) -> None:
            asyncio.get_running_loop().call_soon(calling.cancel)
            with suppress(asyncio.CancelledError):
                await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(psycopg, "AsyncRawCursor", Cursor)
    link: Any = PsycopgConnection(cast("Any", None))
    for call in (link.fetch, link.execute):
        calling = asyncio.ensure_future(call("SELECT 1"))
        await asyncio.wait([calling], timeout=30)
        assert calling.cancelled()


async def test_who_waits_for_a_connection_gets_one() -> None:
    """With a single connection, those who wait get it in turn, and so does one who keeps it longer."""
    async with FreshStore(pool_size=1) as store:

        async def hold() -> None:
            async with store.database.acquire() as connection:
                await connection.fetch("SELECT 1")

        async with asyncio.timeout(60):
            calls = [store.now() if n % 3 else hold() for n in range(30)]
            await asyncio.gather(*calls)
        assert pool_of(store).waiting == 0


async def test_a_call_that_ends_early_leaves_its_connection_to_the_pool() -> None:
    """It may have an answer under way that is meant for nobody: only the pool knows when it is free."""
    async with FreshStore(pool_size=1) as store:
        await store.now()
        with pytest.raises(TimedOut):
            await store.now(timeout=0.0)
        assert pool_of(store).kept == []
        await store.now()
        assert len(pool_of(store).kept) == 1


async def test_a_connection_that_the_server_has_ended_is_replaced() -> None:
    """Whether it is known to have ended before the next call, or shows only then."""
    async with FreshStore(pool_size=2) as store:
        await store.now()
        [(kept, _)] = pool_of(store).kept
        pid = kept.get_server_pid()
        await ask(f"SELECT pg_terminate_backend({pid})")
        await store.now()
        async with asyncio.timeout(60):
            while [one for one, _ in pool_of(store).kept if one is kept]:
                await store.now()
        assert all(one.get_server_pid() != pid for one, _ in pool_of(store).kept)


async def test_a_connection_that_was_idle_for_long_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lies between may have forgotten it, and would not say so."""
    async with FreshStore(pool_size=1) as store:
        await store.now()
        [(kept, _)] = pool_of(store).kept
        pid = kept.get_server_pid()
        monkeypatch.setattr(connection, "MAX_IDLE_S", -1.0)
        await store.now()
        monkeypatch.undo()
        [(fresh, _)] = pool_of(store).kept
        assert fresh.get_server_pid() != pid


class SlowToConnect(Proxy):
    """Each new connection takes longer than callers wait."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(asyncio.sleep(4 * PATIENCE))
        self._tasks.add(serving)
        self._writers.add(writer)
        with suppress(asyncio.CancelledError):
            await serving
            await super()._serve(reader, writer)
        self._tasks.discard(serving)


PATIENCE = 0.1


@pytest.mark.parametrize("urgent", [False, True])
async def test_a_server_that_is_slow_to_connect_to_is_reached(*, urgent: bool) -> None:
    """After a restart of the server, on a busy machine, connecting takes longer than any call waits. A connection
    that is being made is not thrown away with the caller that has given up, so that a later one has it."""
    async with FreshStore() as store:
        proxy = SlowToConnect(direct())
        url = await proxy.start()
        schema = store.database.queries.schema
        claim = Claim(owner="me", token=1, run_id="r", claimed_at=await store.now())
        async with PostgresStore(url, schema=schema, notify=False) as slow, asyncio.timeout(60):
            given_up = 0
            while True:
                try:
                    await (
                        slow.renew([claim], 30, timeout=PATIENCE)
                        if urgent
                        else slow.now(timeout=PATIENCE)
                    )
                except TryAgain:
                    given_up += 1
                else:
                    break
        await proxy.stop()
        assert given_up
