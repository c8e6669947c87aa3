"""A store on the user's own transaction: their data and ours are committed together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlast.errors import Busy, Fenced, InvalidValue, RunExists
from outlast.model import Commit, Committed, Event, Item, Receipt, Run, Send, Task
from outlast.model.times import NOW
from outlast.ports import SystemClock
from outlast.stores.postgres import PostgresStore
from tests.stores.postgres.places import SCHEMA, direct

pytestmark = pytest.mark.server


@pytest.fixture
async def user() -> AsyncIterator[asyncpg.Connection]:
    """A connection of the application, with a table of its own."""
    connection = await asyncpg.connect(direct())
    await connection.execute("CREATE TEMP TABLE orders (id text)")
    yield connection
    await connection.close()


@pytest.mark.proves("I12")
async def test_a_start_is_committed_with_the_users_data(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """Before the commit nobody sees the run; after it both are there."""
    async with user.transaction():
        await user.execute("INSERT INTO orders VALUES ('o-1')")
        run = Run(id="o-1", workflow="order", runnable_at=NOW)
        started = Event(type="workflow.started", run_id="o-1")
        (outcome,) = await store.on(user).commit(
            [Commit(run_id="o-1", create=run, events=(started,))]
        )
        assert isinstance(outcome, Committed)
        assert not await store.exists("o-1")
    assert await store.last_sequence("o-1") == 1
    assert await user.fetchval("SELECT count(*) FROM orders") == 1


@pytest.mark.proves("I12", "I25")
async def test_a_rollback_takes_everything_back(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """Run, signal and task vanish with the user's data."""
    await store.append("there", [Event(type="x", run_id="there")])

    async def work() -> None:
        async with user.transaction():
            borrowed = store.on(user)
            await borrowed.commit([Commit(run_id="new", create=Run(id="new"))])
            item = Item(kind="signal", name="go")
            (receipt,) = await borrowed.send([Send(run_id="there", item=item)])
            assert isinstance(receipt, Receipt)
            assert await borrowed.queue().enqueue("mail", [Task(id="t")]) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert not await store.exists("new")
    assert await store.inbox("there") == []
    assert await store.find_available_tasks(queue="mail") == []


@pytest.mark.proves("I16", "M-11")
async def test_a_signal_and_a_task_travel_along(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """Both are there after the commit."""
    await store.append("there", [Event(type="x", run_id="there")])
    async with user.transaction():
        borrowed = store.on(user)
        await borrowed.send([Send(run_id="there", item=Item(kind="signal", name="go"))])
        await borrowed.queue().enqueue("mail", [Task(id="t")])
    assert [item.name for item in await store.inbox("there")] == ["go"]
    assert [task.id for task in await store.find_available_tasks(queue="mail")] == ["t"]


async def test_a_refusal_leaves_the_transaction_as_it_was(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """It is a value: the user may go on and commit."""
    await store.append("taken", [Event(type="x", run_id="taken")])
    async with user.transaction():
        (outcome,) = await store.on(user).commit([Commit(run_id="taken", create=Run(id="taken"))])
        assert isinstance(outcome, RunExists)
        await user.execute("INSERT INTO orders VALUES ('o-2')")
    assert await user.fetchval("SELECT count(*) FROM orders") == 1


async def test_without_a_transaction_there_is_nothing_to_join(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """The error says how to begin one."""
    with pytest.raises(InvalidValue, match=r"connection\.transaction"):
        store.on(user)


@pytest.mark.proves("I24")
async def test_the_commit_wakes_those_who_wait(user: asyncpg.Connection) -> None:
    """The database sends a wake-up when the transaction is committed, in this process too."""
    async with PostgresStore(direct(), schema=SCHEMA) as store:
        wakeups = store.notifier.wakeups
        assert await store.notifier.wait(SystemClock(), 30, since=wakeups)  # it listens now
        wakeups = store.notifier.wakeups
        async with user.transaction():
            await store.on(user).commit(
                [Commit(run_id="woken", create=Run(id="woken", workflow="w", runnable_at=NOW))]
            )
            assert store.notifier.wakeups == wakeups
        assert await store.notifier.wait(SystemClock(), 30, since=wakeups)
        await store.delete("woken")


@pytest.mark.proves("I5", "I12")
async def test_a_fenced_commit_is_the_last_word_of_a_transaction(
    store: PostgresStore, user: asyncpg.Connection
) -> None:
    """What a transactional step needs: its effects and its completion are one. Meanwhile the run is
    busy for others; under a lost claim it is refused, and the user's data go back."""
    await store.append("r", [Event(type="x", run_id="r")])
    (held,) = await store.claim_runs("w", 30, run_ids=["r"])
    token = held.claim.token

    def completion(sequence: int) -> Commit:
        event = Event(type="step.completed", run_id="r")
        return Commit(run_id="r", token=token, expected=sequence, events=(event,))

    commit = completion(1)
    async with user.transaction():
        await user.execute("INSERT INTO orders VALUES ('o-1')")
        (outcome,) = await store.on(user).commit([commit])
        assert isinstance(outcome, Committed)
        (other,) = await store.commit([completion(1)])
        assert isinstance(other, Busy)
    (again,) = await store.commit([commit])  # how a COMMIT that was not answered is settled
    assert isinstance(again, Committed)
    assert again.again

    await store.release([held.claim])
    await store.claim_runs("v", 30, run_ids=["r"])
    transaction = user.transaction()
    await transaction.start()
    await user.execute("INSERT INTO orders VALUES ('o-2')")
    (refused,) = await store.on(user).commit([completion(2)])
    assert isinstance(refused, Fenced)
    await transaction.rollback()
    assert await user.fetchval("SELECT count(*) FROM orders") == 1
    assert await store.last_sequence("r") == 2
