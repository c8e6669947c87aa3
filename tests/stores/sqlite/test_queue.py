"""The queue in the store's file, and on its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from outlast.errors import QueueClosed
from outlast.model import Commit, Run, Task
from outlast.stores.sqlite import SqliteQueue, SqliteStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.sqlite.probes import Probe


@pytest.mark.proves("I12", "I23", "S-08")
async def test_tasks_of_a_commit_are_in_the_queue(store: SqliteStore) -> None:
    """What a commit brings is handed out by the queue of the same file."""
    task = Task(run_id="a", id="t", queue="mail", name="send")
    await store.commit([Commit(run_id="a", create=Run(id="a"), tasks=(task,))])
    async with store.queue() as queue:
        delivery = await queue.dequeue("mail")
        assert delivery is not None
        assert delivery.task.name == "send"
        assert delivery.task.uid == (await store.get("a")).uid
        await queue.ack(delivery.claim)
        assert await queue.len("mail") == 0


async def test_a_queue_in_another_process(store: SqliteStore, path: Path) -> None:
    """A queue that is opened on its own finds the tasks of the store's commits."""
    task = Task(run_id="a", id="t", queue="mail")
    await store.commit([Commit(run_id="a", create=Run(id="a"), tasks=(task,))])
    async with SqliteQueue(path, clock=store.clock) as queue:
        delivery = await queue.dequeue("mail")
        assert delivery is not None
        assert delivery.task.id == "t"


@pytest.mark.proves("M-11", "M-13", "M-16")
async def test_a_queue_on_its_own(path: Path, clock: ManualClock, inline: bool) -> None:
    """It needs no store: the same tables are made, and it opens at the first call."""
    queue = SqliteQueue(f"sqlite:///{path}", clock=clock, inline=inline)
    assert await queue.enqueue("q", [Task(id="one"), Task(id="one")]) == 1
    delivery = await queue.dequeue("q")
    assert delivery is not None
    await queue.ack(delivery.claim)
    await queue.close()
    with pytest.raises(QueueClosed):
        await queue.len("q")
    async with SqliteStore(path) as store:
        assert await store.find_available_tasks(limit=10) == []


async def test_a_queue_that_was_not_opened_ends_with_its_store(
    path: Path, clock: ManualClock
) -> None:
    """It borrows the store's database, so that nobody has to close it."""
    async with SqliteStore(path, clock=clock) as store:
        queue = store.queue()
        await queue.enqueue("q", [Task()])
    with pytest.raises(QueueClosed):
        await queue.len("q")


async def test_a_queue_that_was_opened_goes_on_without_its_store(
    path: Path, clock: ManualClock
) -> None:
    """The last one to leave closes the file."""
    store = SqliteStore(path, clock=clock)
    await store.open()
    async with store.queue() as queue:
        await store.close()
        assert await queue.enqueue("q", [Task()]) == 1
    with pytest.raises(QueueClosed):
        await queue.len("q")


async def test_a_queue_may_be_used_before_its_store(path: Path, clock: ManualClock) -> None:
    """The queue of a store that nobody has opened yet opens the file itself."""
    store = SqliteStore(path, clock=clock)
    queue = store.queue()
    assert await queue.enqueue("q", [Task()]) == 1
    await queue.close()
    await store.close()


async def test_closing_wakes_those_who_wait(store: SqliteStore) -> None:
    """Whoever waits for a task is told that none will come."""
    queue = store.queue()
    await queue.open()
    waiting = asyncio.create_task(queue.dequeue("q", wait=3600))
    while not store.clock.sleepers:  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0)
    await queue.close()
    with pytest.raises(QueueClosed):
        await waiting


@pytest.mark.proves("I31")
async def test_looking_for_work_writes_nothing(store: SqliteStore, probe: Probe) -> None:
    """Idle workers do not take the writer's lock: an empty queue and an idle store are only read."""
    queue = store.queue()
    await store.save(Run(id="a"))
    probe.statements.clear()
    assert await queue.take("q", owner="w", visibility=30) is None
    assert await store.claim_runs("w", 30) == []
    await store.next_runnable_at()
    assert probe.threads_of("BEGIN IMMEDIATE") == set()
