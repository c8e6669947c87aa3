"""Commits that begin runs are written together: what stands in the same batch must not notice."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from outlast.errors import Busy, RunExists
from outlast.model import Change, Commit, Committed, Event, Item, Run, RunQuery, Send, Start, Status
from outlast.model.claim import ClaimOnCreate
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from tests.stores.postgres.places import SCHEMA, ask

pytestmark = pytest.mark.server


def begin(id: str, change: Change | None = None, *, release: bool = False) -> Commit:
    """A run that its writer holds."""
    return Commit(
        run_id=id,
        create=Run(id=id, uid=f"{id}-1", workflow="w", runnable_at=NOW, attributes={"a": 1}),
        hold=ClaimOnCreate("w-1", 30),
        events=(Event(type="workflow.started", run_id=id),),
        change=change,
        release=release,
    )


def send(by: str, to: str) -> Commit:
    """A commit that sends an item to another run."""
    return Commit(run_id=by, force=True, sends=(Send(run_id=to, item=Item(kind="signal")),))


async def told(store: Store) -> list[tuple[object, ...]]:
    """What two batches leave behind."""
    parked = Change(status=Status.WAITING, current_step="s", runnable_at=None)
    await store.commit([begin("other"), begin("parked", parked, release=True)])
    await store.commit(
        [
            send("other", "late"),
            begin("late", Change(current_step="s")),
            begin("over", Change(status=Status.COMPLETED)),
            Commit(run_id="parked", force=True, change=Change(status=Status.FAILED, error="e")),
        ]
    )
    found: list[tuple[object, ...]] = []
    for id in ("other", "parked", "late", "over"):
        run = await store.get(id)
        history = [event.sequence for event in await store.history(id)]
        said = (run.status, run.owner, run.token > 0, run.current_step, run.runnable_at, run.error)
        found.append((id, *said, run.inbox, run.revision, run.attributes, history))
    return found


async def test_those_that_begin_together_keep_the_order_of_the_batch(
    store: PostgresStore, clock: ManualClock
) -> None:
    """A send comes before the run that is new after it, and all is as the memory store has it."""
    async with MemoryStore(clock=clock) as memory:
        assert await told(store) == await told(memory)


# -- many at once ---------------------------------------------------------------------------------

MANY = 500
LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"


def births(*ids: str) -> list[Commit]:
    """Commits that begin runs."""
    return [Commit(run_id=id, create=Run(id=id, workflow="w")) for id in ids]


def children(parent: str, *ids: str) -> Commit:
    """A commit of a run that begins children."""
    return Commit(
        run_id=parent,
        starts=tuple(Start(run=Run(id=f"{parent}~{id}", parent=parent)) for id in ids),
    )


NAMES = [f"{n:03}" for n in range(MANY)]


@pytest.mark.proves("I12")
@pytest.mark.parametrize(
    "commits",
    [
        births(*NAMES),
        [children("p", *NAMES)],
        [replace(children(n, "c"), create=Run(id=n)) for n in NAMES],
    ],
    ids=["runs", "children", "both"],
)
async def test_a_batch_takes_few_places_in_the_table_of_locks(
    store: PostgresStore, commits: list[Commit]
) -> None:
    """However many runs begin in it: the table has 64 places for each connection."""
    await store.commit(births("p"))
    async with store.transaction() as (connection, inside):
        outcomes = await inside.commit(commits)
        assert await connection.fetchval(LOCKS) <= 64
    assert all(isinstance(one, Committed) for one in outcomes)
    assert len((await store.find(RunQuery(limit=1000))).items) >= MANY


@pytest.mark.proves("I11", "I12")
async def test_a_name_that_is_taken_meanwhile_refuses_its_own_commit_only(
    store: PostgresStore,
) -> None:
    """The last of many names belongs to a transaction that is open: the batch waits for it. If that
    commits, one commit is busy and the others are written."""
    async with store.transaction() as (_, inside):
        await inside.commit(births(NAMES[-1]))
        batch = asyncio.create_task(store.commit(births(*NAMES)))
        await waits_for_a_lock()
    *others, last = await batch
    assert all(isinstance(one, Committed) for one in others)
    assert isinstance(last, Busy)
    assert await store.exists(NAMES[-1])
    again = await store.commit(births(NAMES[-1]))
    assert isinstance(again[0], RunExists)


@pytest.mark.proves("I12")
async def test_a_name_that_is_taken_meanwhile_refuses_an_atomic_batch(store: PostgresStore) -> None:
    """All or nothing: nothing is written, and the caller may try again."""
    async with store.transaction() as (_, inside):
        await inside.commit(births(NAMES[-1]))
        batch = asyncio.create_task(store.commit(births(*NAMES), atomic=True))
        await waits_for_a_lock()
    with pytest.raises(Busy):
        await batch
    assert [run.id for run in (await store.find(RunQuery())).items] == [NAMES[-1]]


async def test_a_child_that_is_there_meanwhile_is_left_alone(store: PostgresStore) -> None:
    """As one that was there before: the others of the commit begin, each once."""
    await store.commit(births("p"))
    taken = Run(id=f"p~{NAMES[-1]}", uid="first", parent="p")
    async with store.transaction() as (_, inside):
        await inside.commit([Commit(run_id=taken.id, create=taken)])
        commit = asyncio.create_task(store.commit([children("p", *NAMES)]))
        await waits_for_a_lock()
    (begun,) = await commit
    assert isinstance(begun, Committed)
    assert (await store.get(taken.id)).uid == "first"
    assert len((await store.find(RunQuery(parent="p", limit=1000))).items) == MANY


async def test_batches_that_begin_the_same_runs_do_not_lock_each_other_out(
    store: PostgresStore,
) -> None:
    """In whatever order each of them names the runs: every run begins once."""
    first, second = await asyncio.gather(
        store.commit(births(*NAMES)), store.commit(births(*reversed(NAMES)))
    )
    begun = [one for one in (*first, *second) if isinstance(one, Committed)]
    assert len(begun) == MANY
    assert {type(one) for one in (*first, *second)} <= {Committed, Busy, RunExists}


async def waits_for_a_lock() -> None:
    """Until a session of the store waits for another's transaction."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'transactionid'"
    async with asyncio.timeout(30):
        while not await ask(f"{waiting} AND query LIKE '%{SCHEMA}%'"):
            pass
