"""Every hot query walks an index: what a store holds besides does not slow it down."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files

import pytest

from outlast.model import Change, Commit, Run, RunQuery, Status, Task
from outlast.model.times import NOW
from outlast.stores._sql.session import named_statements
from outlast.stores.sqlite import SqliteStore, schema
from outlast.stores.sqlite.schema import query
from outlast.testing.virtual_clock import ManualClock
from tests.stores.sqlite.probes import Probe

INDEXED = {
    "load_run": "sqlite_autoindex_runs_1",
    "find_event": "events_id",
    "load_history": "PRIMARY KEY",
    "find_runnable": "runs_runnable",
    "find_expired_claims": "runs_held",
    "find_newest": "runs_created",
    "find_filed": "runs_filed",
    "find_children": "runs_parent",
    "find_level": "tasks_free",
    "find_ready": "tasks_free",
    "find_fair_key_first": "tasks_by_fair_key",
    "find_fair_key_level": "tasks_by_fair_key",
    "find_fair_key_ready": "tasks_by_fair_key",
    "find_task": "sqlite_autoindex_tasks_1",
    "find_snapshot": "sqlite_autoindex_snapshots_1",
    "find_fact": "sqlite_autoindex_facts_1",
}
"""Queries that do nothing but search this index: they neither scan nor sort."""

UNSCANNED = [
    "load_runs", "find_run", "find_runs_by_key", "find_runnable_workflows", "find_files", "find_claimable",
    "load_inbox", "find_unseen_item", "load_timers", "find_due_timers", "load_entries",
    "load_activities", "find_activity", "find_attributed", "has_attribute", "find_tree",
    "delete_keys_of_tree", "delete_tasks_of_run", "delete_dead_tasks_of_run", "find_ended",
    "find_available_task_of_run", "find_queues", "find_expired_tasks", "count_ready", "load_dead_tasks",
    "find_snapshot_ids", "carry_items", "recall_key", "drop_tasks", "drop_dead_tasks",
    "delete_events", "delete_inbox", "delete_receipts", "delete_timers", "delete_entries",
    "delete_activities", "delete_snapshot", "delete_attributes", "delete_unfired_timers",
    "load_policy", "load_policy_changes", "has_fair_keys", "wake_fair_keys", "wake_scope", "count_awake",
    "find_fair_keys", "find_fair_key", "count_fair_key", "forget_fair_keys", "insert_fair_key", "move_fair_key", "find_fair_key_time", "put_key_to_sleep",
    "count_in_flight", "count_starts", "forget_starts", "find_fair_key_expired", "find_keyed_task",
    "has_awake_fair_key", "count_due", "count_held", "count_late", "count_dead", "find_keys",
    "find_next_ready", "find_next_start",
]  # fmt: skip
"""Queries that may join and sort a little, but never walk a whole table or index."""

HARMLESS = (
    "SCAN json_each", "SCAN CONSTANT",
    "SCAN shelf", "SCAN named", "SCAN free", "SCAN held", "SCAN keyed", "SCAN levels",
    "SCAN (subquery", "SCAN k",  # so many rows as were asked for
     # the rows of a recursion
)  # fmt: skip


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    """The tables, empty and without statistics, as in every store."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for migration in schema.migrations():
            for statement in schema.statements_of(migration):
                connection.execute(statement)
        yield connection


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    """How SQLite would run a query."""
    text = query(name)
    names = re.findall(r":(\w+)", re.sub(r"--.*", "", text))
    values = dict.fromkeys(names, 1) if names else [1] * text.count("?")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", values).fetchall()
    return [detail for *_, detail in rows]


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.proves("S-19")
def test_a_query_is_a_search(database: sqlite3.Connection, name: str) -> None:
    """It goes by the index that was made for it: nothing is scanned and nothing sorted. What code has
    rejected a run is looked up by its key, only for runs that are about to be claimed."""
    steps = [step for step in plan(database, name) if "SCALAR SUBQUERY" not in step]
    assert all(step.startswith("SEARCH") for step in steps), steps
    assert INDEXED[name] in steps[0]


@pytest.mark.parametrize("name", UNSCANNED)
def test_a_query_scans_no_table(database: sqlite3.Connection, name: str) -> None:
    """No table is walked from end to end, and none is given an index for the moment."""
    steps = plan(database, name)
    scans = {step for step in steps if step.startswith("SCAN")}
    assert {step for step in scans if not step.startswith(HARMLESS)} == set()
    assert not any("AUTOMATIC" in step for step in steps)


def test_the_next_takeover_stops_early(database: sqlite3.Connection) -> None:
    """It walks the index of held runs in order, so that its limit ends the walk."""
    steps = plan(database, "find_next_takeover")
    assert [step for step in steps if "USING INDEX runs_held" not in step] == ["SCALAR SUBQUERY 1"]


def test_every_query_is_used() -> None:
    """A statement that no code asks for is dead code."""
    package = files(schema.__package__)
    code = "".join(
        file.read_text(encoding="utf-8") for file in package.iterdir() if file.name.endswith(".py")
    )
    computed = {"set_", "delete_"}
    unused = [
        name
        for name in named_statements(schema.PACKAGE)
        if f'"{name}"' not in code and not name.startswith(tuple(computed))
    ]
    assert unused == []


async def statements_of(probe: Probe, call: object) -> int:
    """How many statements an awaited call took."""
    probe.statements.clear()
    await call  # type: ignore[misc]
    return len(probe.statements)


async def test_a_claim_does_not_walk_past_others(
    store: SqliteStore, probe: Probe, clock: ManualClock
) -> None:
    """Runs that others hold, that sleep, or whose code the claimer lacks cost it nothing: the
    number of statements does not depend on them."""
    await store.commit(
        [
            Commit(run_id=f"r{n:03}", create=Run(id=f"r{n:03}", workflow="w", runnable_at=NOW))
            for n in range(100)
        ]
    )
    few = await statements_of(probe, store.claim_runs("a", 60, limit=1, workflows=["w"]))
    await store.claim_runs("a", 60, limit=90)
    await store.commit(
        [
            Commit(run_id=f"o{n:03}", create=Run(id=f"o{n:03}", workflow="other", runnable_at=NOW))
            for n in range(100)
        ]
    )
    many = await statements_of(probe, store.claim_runs("a", 60, limit=1, workflows=["w"]))
    assert many == few


async def test_a_search_costs_what_it_shows(store: SqliteStore, probe: Probe) -> None:
    """Ten runs are found among many others with as many statements as among none."""
    await store.commit(
        [Commit(run_id=f"r{n}", create=Run(id=f"r{n}", workflow="w")) for n in range(10)]
    )
    wanted = RunQuery(workflow="w", status=frozenset({Status.PENDING}), limit=5)
    few = await statements_of(probe, store.find(wanted))
    await store.commit(
        [
            Commit(
                run_id=f"x{n}",
                create=Run(id=f"x{n}", workflow="w"),
                change=Change(status=Status.COMPLETED),
            )
            for n in range(300)
        ]
    )
    assert await statements_of(probe, store.find(wanted)) == few
    assert len((await store.find(wanted)).items) == 5


async def test_a_take_skips_what_is_delayed(store: SqliteStore, probe: Probe) -> None:
    """Delayed tasks of a smaller priority number are not walked past one by one."""
    queue = store.queue()
    await queue.enqueue("q", [Task(priority=5), Task(priority=5)])
    few = await statements_of(probe, queue.take("q", owner="w", visibility=60))
    await queue.enqueue("q", [Task(priority=1) for _ in range(300)], delay=3600)
    many = await statements_of(probe, queue.take("q", owner="w", visibility=60))
    # One more level of priority: to find it, and to see that nothing is due, twice.
    assert many <= few + 4
