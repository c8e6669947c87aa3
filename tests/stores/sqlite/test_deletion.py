"""Deleting a run leaves nothing of it in any table, and touches nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from outlast.errors import StoreFault
from outlast.model import (
    Activity,
    Change,
    Commit,
    Creation,
    Entry,
    Fact,
    Item,
    Run,
    Send,
    Snapshot,
    Start,
    Status,
    Task,
    Timer,
)
from outlast.model.queue_policy import QueuePolicy, Rate
from outlast.model.times import NOW
from outlast.stores.sqlite import SqliteStore
from outlast.testing.virtual_clock import START
from tests.stores.sqlite.probes import Other, Probe, event

KEPT = {"counters", "run_counts", "policies", "policy_changes", "starts", "fair_keys"}
"""What does not belong to runs. Counts stay, at 0."""

EMPTY = ["workers", "owners", "deaths"]
"""What processes write about themselves, and about the death of others."""


def full(run_id: str, parent: str | None = None) -> Commit:
    """A commit that writes to every table that a run may have rows in."""
    child = f"{run_id}~kid"
    return Commit(
        run_id=run_id,
        create=Run(id=run_id, parent=parent, attributes={"k": 1}, input=Raw(b"1"), runnable_at=NOW),
        change=Change(ctx={"x": Raw(b"1")}, error="e"),
        events=(event(run_id),),
        tasks=tuple(Task(run_id=run_id, id=id, queue=run_id, key="k") for id in ("t1", "t2")),
        timers=(Timer(run_id=run_id, id="m", fire_at=START),),
        facts=(Fact.of(run_id.encode()),),
        entries=(Entry(run_id=run_id, step_id="s", action="completed"),),
        activities=(Activity(id=f"act-{run_id}", run_id=run_id),),
        snapshot=Snapshot(run_id=run_id, sequence=1, data=b"x"),
        starts=(Start(Run(id=child, parent=run_id, attributes={"k": 1}), (event(child),)),),
    )


async def fill(store: SqliteStore, *run_ids: str) -> None:
    """Runs that have something in every table, a dead task included."""
    queue = store.queue()
    for run_id in run_ids:
        await queue.set_policy(QueuePolicy(queue=run_id, rate=Rate(9, 9.0)), by="test")
        await store.commit([full(run_id)])
        await store.send([Send(run_id=run_id, item=Item(kind="signal")) for _ in range(2)])
        await store.remember("start", f"key-{run_id}", run_id, run_id=run_id)
        delivery = await queue.dequeue(run_id)
        assert delivery is not None
        await queue.nack(delivery.claim, requeue=False)


def contents(other: Other) -> dict[str, list[tuple[object, ...]]]:
    """All rows of all tables."""
    tables = other.ask("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name: sorted(other.ask(f"SELECT * FROM {name}"), key=repr) for (name,) in tables}


@pytest.mark.proves("I25", "M-09", "D-11", "R-08")
async def test_nothing_is_left(store: SqliteStore, other: Other) -> None:
    """After the only run is deleted, every table is as empty as at the beginning."""
    await fill(store, "a")
    filled = contents(other)
    assert [name for name, rows in filled.items() if not rows] == EMPTY
    assert await store.delete("a")
    assert {name for name, rows in contents(other).items() if rows} == KEPT
    # A queue forgets the keys of what is gone when it goes on.
    await store.queue().enqueue("a", [Task(id="1", key="other"), Task(id="2", key="other")])
    await store.queue().take_many(["a"], owner="w", visibility=30, limit=2)
    assert {row[1] for row in contents(other)["fair_keys"]} == {"", "other"}


@pytest.mark.proves("I25", "I27")
@pytest.mark.parametrize("neighbour", ["a0", "a-", "A", "aa", "a\u00e9", "b"])
async def test_neighbours_stay(store: SqliteStore, other: Other, neighbour: str) -> None:
    """Ids that begin alike, or sort close to the run's children, are not touched."""
    await fill(store, neighbour)
    before = contents(other)
    await fill(store, "a")
    await store.delete("a")
    after = contents(other)
    for name in set(after) - KEPT:
        assert after[name] == before[name], name


@pytest.mark.proves("I12", "I25")
async def test_a_replacement_is_whole(store: SqliteStore, other: Other) -> None:
    """Replacing a life removes the old one and writes the new one in one transaction."""
    await fill(store, "a")
    await store.commit([Commit(run_id="a~kid", change=Change(status=Status.COMPLETED))])
    uid = (await store.get("a")).uid
    fresh = Commit(
        run_id="a",
        create=Run(id="a"),
        creation=Creation.REPLACE,
        force=True,
        events=(event("a"),),
    )
    await store.commit([fresh])
    rows = {name: len(rows) for name, rows in contents(other).items() if rows}
    assert {name: rows[name] for name in set(rows) - KEPT} == {"runs": 1, "events": 1}
    assert await store.counts() == {("", Status.PENDING): 1}
    assert (await store.get("a")).uid != uid


DELETES = [
    "DELETE FROM events", "DELETE FROM inbox", "DELETE FROM receipts", "DELETE FROM timers",
    "DELETE FROM entries", "DELETE FROM activities", "DELETE FROM snapshots",
    "DELETE FROM attributes", "DELETE FROM run_details", "DELETE FROM run_values",
    "DELETE FROM runs", "DELETE FROM tasks", "DELETE FROM dead_tasks", "DELETE FROM keys",
    "DELETE FROM facts", "COMMIT",
]  # fmt: skip


@pytest.mark.parametrize("statement", DELETES)
@pytest.mark.proves("I12", "I25")
async def test_a_failure_at_each_statement(
    path: Path, probe: Probe, other: Other, statement: str
) -> None:
    """A delete that fails anywhere has deleted nothing."""
    async with SqliteStore(path, connect=probe.connect) as store:
        await fill(store, "a")
        before = contents(other)
        probe.before(statement, _fail)
        with pytest.raises(StoreFault):
            await store.delete("a")
        assert contents(other) == before


def _fail() -> None:
    error = sqlite3.OperationalError("disk full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


@pytest.mark.proves("I26", "C-05")
async def test_retention_takes_the_oldest_first(store: SqliteStore) -> None:
    """With more to remove than one call may, it is those that ended longest ago."""
    clock: Callable[[float], None] = store.clock.advance  # type: ignore[attr-defined]
    for name in ("c", "a", "b"):
        await store.save(Run(id=name, status=Status.COMPLETED))
        clock(1)
    now = await store.now()
    assert await store.expire(now, limit=2) == ["a", "c"]
    assert await store.expire(now, limit=2) == ["b"]


async def test_readers_see_a_delete_whole(store: SqliteStore) -> None:
    """A history that is read while its run is deleted is all there or not at all."""
    for _ in range(5):
        await store.append("a", [event("a") for _ in range(600)])
        history, gone = await asyncio.gather(store.history("a"), store.delete("a"))
        assert len(history) in (0, 600)
        assert gone
