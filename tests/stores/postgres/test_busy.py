"""A run that is locked for a moment is waited for: nobody's order fails because a worker is writing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

import outlast
from outlast.errors import Busy
from outlast.model.run import Status
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.postgres.places import SCHEMA, direct

pytestmark = pytest.mark.server

LOCK = f"SELECT FROM {SCHEMA}.runs WHERE id = 'order' FOR UPDATE"


@outlast.workflow
async def waits() -> None:
    """Until somebody says so."""
    await outlast.wait_for_signal("done")


@pytest.fixture
async def other() -> AsyncIterator[asyncpg.Connection]:
    """Another program's connection."""
    connection = await asyncpg.connect(direct())
    yield connection
    await connection.close()


async def test_a_run_that_is_locked_for_a_moment_is_terminated(
    store: PostgresStore, other: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is gone when it is tried again."""
    client = outlast.App(store, workflows=[waits])
    await client.start(waits(), id="order", here=False)
    lock = other.transaction()
    await lock.start()
    await other.execute(LOCK)
    waited = []

    async def let_go(seconds: float) -> None:
        waited.append(seconds)
        await lock.rollback()

    monkeypatch.setattr(store.clock, "sleep", let_go)
    await client.get("order").terminate("enough")
    assert (await store.get("order")).status is Status.CANCELLED
    assert len(waited) == 1


async def test_one_that_stays_locked_is_busy(
    store: PostgresStore,
    clock: ManualClock,
    other: asyncpg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A caller waits up to its timeout, is told that its own transaction may be the reason, and nothing
    is written."""
    client = outlast.App(store, workflows=[waits])
    await client.start(waits(), id="order", here=False)
    waited = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(seconds)

    monkeypatch.setattr(store.clock, "sleep", wait)
    async with other.transaction():
        await other.execute(LOCK)
        with pytest.raises(Busy, match="a transaction of your own"):
            await client.get("order").terminate("enough", timeout=1)
    assert len(waited) > 1
    assert (await store.get("order")).status is Status.PENDING
