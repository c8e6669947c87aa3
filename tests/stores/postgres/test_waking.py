"""Wake-ups between processes, here between two stores on the same tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlast.model import Commit, Run
from outlast.model.times import NOW
from outlast.ports import SystemClock
from outlast.stores.postgres import PostgresStore
from outlast.stores.postgres.notifier import PostgresNotifier
from tests.stores.postgres.places import SCHEMA, FreshStore, ask, direct, pooled

pytestmark = pytest.mark.server

CLOCK = SystemClock()


def notifier(store: PostgresStore) -> PostgresNotifier:
    """The wake-up channel of a store."""
    return store.database.notifier


async def listening(store: PostgresStore) -> int:
    """Wait until a store listens; how often it has woken by then."""
    while not notifier(store).is_listening:
        await notifier(store).wait(CLOCK, 0.05, since=notifier(store).wakeups)
    return notifier(store).wakeups


@pytest.fixture
async def here() -> AsyncIterator[PostgresStore]:
    """A store that sends a wake-up and listens."""
    async with FreshStore(notify=True) as store:
        await listening(store)
        yield store


@pytest.fixture
async def there(here: PostgresStore) -> AsyncIterator[PostgresStore]:
    """Another, as in another process."""
    async with PostgresStore(direct(), schema=SCHEMA) as store:
        await listening(store)
        yield store


async def begin(store: PostgresStore, id: str) -> None:
    """A run that can be claimed."""
    await store.commit([Commit(run_id=id, create=Run(id=id, runnable_at=NOW))])


@pytest.mark.proves("I24")
async def test_a_commit_wakes_other_processes(here: PostgresStore, there: PostgresStore) -> None:
    """Whoever waits elsewhere is woken, and finds the run."""
    wakeups = notifier(there).wakeups
    await begin(here, "r")
    assert await there.notifier.wait(CLOCK, 60, since=wakeups)
    assert [one.run.id for one in await there.claim_runs("w", 30)] == ["r"]


@pytest.mark.proves("I31")
async def test_many_wakeups_are_few_notifications(
    here: PostgresStore, there: PostgresStore
) -> None:
    """They are gathered: a hundred commits are heard as a few."""
    wakeups = notifier(there).wakeups
    for _ in range(100):
        here.notifier.wake()
    assert await there.notifier.wait(CLOCK, 60, since=wakeups)
    assert notifier(there).wakeups - wakeups < 5


@pytest.mark.proves("I24")
async def test_a_listener_that_was_cut_off_comes_back(
    here: PostgresStore, there: PostgresStore
) -> None:
    """It connects again and sends a wake-up, for whatever came meanwhile."""
    wakeups = notifier(there).wakeups
    await ask(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        f"WHERE query LIKE 'LISTEN%{notifier(there).channel}%'"
    )
    assert await there.notifier.wait(CLOCK, 60, since=wakeups)
    await listening(there)
    wakeups = notifier(there).wakeups
    await begin(here, "r")
    assert await there.notifier.wait(CLOCK, 60, since=wakeups)


@pytest.mark.proves("I24")
async def test_without_any_wakeup_the_work_is_found_by_polling(here: PostgresStore) -> None:
    """Behind a pooler nobody listens, and nothing is lost."""
    async with PostgresStore(pooled(), schema=SCHEMA) as deaf:
        await begin(here, "r")
        assert not notifier(deaf).is_listening
        assert [one.run.id for one in await deaf.claim_runs("w", 30)] == ["r"]


async def test_nothing_goes_on_after_closing() -> None:
    """No task and no connection is left."""
    before = asyncio.all_tasks()
    async with PostgresStore(direct(), schema=SCHEMA) as store:
        await listening(store)
    assert asyncio.all_tasks() == before
