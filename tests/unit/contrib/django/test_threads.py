"""Threads with connections of Django's: kept between statements, and never left in a transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created

from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.store import worker_store
from outlast.contrib.django.threads import StepThreads, Threads
from tests.unit.contrib.django.places import POSTGRES, another, use, wipe_and_leave
from tests.unit.contrib.django.settings import on_sqlite
from tests.unit.contrib.django.shop.models import Order


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """What Django connects to during a test: each object knows whether it still has a connection."""
    found: list[Any] = []

    def note(*, connection: Any, **_: Any) -> None:
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """One more database of the project, whose connections Django keeps (CONN_MAX_AGE)."""
    options = on_sqlite(str(tmp_path / "other.db"))
    with another("other", {**options, "CONN_MAX_AGE": None}) as alias:
        yield alias


def used(alias: str) -> None:
    """Do something there, in the thread that calls this."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT 1")


async def test_closing_leaves_no_connection_open(alias: str, other: str, opened: list[Any]) -> None:
    """Nor one to a database that only a transactional step has used: it would stay until the garbage
    collector finds it, on a server as one of the few that there are."""
    threads = Threads(alias, 1)
    await threads.run(threads.connection)
    async with threads.transaction() as held:
        await held.run(used, other)
    assert {one.alias for one in opened} == {alias, other}
    await threads.close()
    assert [one.alias for one in opened if one.connection is not None] == []


async def test_a_thread_of_steps_that_ends_closes_its_connections(
    other: str, opened: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With CONN_MAX_AGE a connection outlives the step, and not the thread that can use it."""
    monkeypatch.setattr("outlast.engine.steps.step_executor.THREAD_IDLE_S", 0.0)
    worked: list[threading.Thread] = []

    def step() -> None:
        used(other)
        worked.append(threading.current_thread())

    await asyncio.get_running_loop().run_in_executor(StepThreads(), step)
    await asyncio.to_thread(worked[0].join, 30)
    assert [one.connection for one in opened] == [None]


async def test_who_is_cancelled_at_the_beginning_leaves_no_transaction_open(alias: str) -> None:
    """Its thread would hold the lock to write of a SQLite file, and be of no use to the next step."""
    threads = Threads(alias, 1)
    connect, go_on, arrived = threads.connection, threading.Event(), threading.Event()

    def slowly() -> Any:
        arrived.set()
        assert go_on.wait(30)
        return connect()

    async def order(name: str) -> None:
        async with threads.transaction() as held:
            await held.run(lambda: Order.objects.using(alias).create(name=name))

    def names() -> list[str]:
        try:
            return [one.name for one in Order.objects.using(alias).all()]
        finally:
            connections[alias].close()

    threads.connection = slowly  # type: ignore[method-assign]
    cancelled = asyncio.create_task(order("never"))
    await asyncio.to_thread(arrived.wait, 30)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    go_on.set()
    threads.connection = connect  # type: ignore[method-assign]
    await order("next")  # in the same thread
    assert await asyncio.to_thread(names) == ["next"]
    await threads.close()


@pytest.mark.server
async def test_transactions_wait_for_their_turn() -> None:
    """A thousand steps at once would be a thousand connections: the server would refuse most of them."""
    await asyncio.to_thread(wipe_and_leave, POSTGRES)
    threads = Threads(POSTGRES, 2)
    open_now, most, both = 0, 0, asyncio.Event()

    async def step() -> None:
        nonlocal open_now, most
        async with threads.transaction() as held:
            open_now += 1
            most = max(most, open_now)
            if open_now == 2:
                both.set()
            await both.wait()  # or the first could be done before the second begins
            await held.run(Order.objects.using(POSTGRES).count)
            open_now -= 1

    await asyncio.wait_for(asyncio.gather(*(step() for _ in range(8))), 60)
    await threads.close()
    assert most == 2


@pytest.mark.server
async def test_a_worker_keeps_its_connections() -> None:
    """CONN_MAX_AGE = 0, Django's default, means the end of a request, and a worker has none: one
    connection for each statement would be most of its time."""
    await asyncio.to_thread(wipe_and_leave, POSTGRES)
    made: list[object] = []

    def count(*, connection: Any, **_: Any) -> None:
        made.append(connection)

    with use(POSTGRES):
        async with worker_store(read_settings()) as store:
            await store.exists("r")
            connection_created.connect(count)
            try:
                for _ in range(20):
                    await store.exists("r")
            finally:
                connection_created.disconnect(count)
    assert len(made) <= 10, "one a thread, or the one that listens"
