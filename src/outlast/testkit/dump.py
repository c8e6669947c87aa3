"""Dump: all that a store shows through its port, as one value to compare and to check.

It works on any store, a remote one included, and sees what a caller sees: nothing is read behind
the port's back. What the port cannot list (facts, keys) is looked up by the names that the caller
knows. Parts whose capability is not declared stay empty.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from msgspec import Struct

from outlast.errors import Unsupported
from outlast.model.event import Event
from outlast.model.query import RunQuery
from outlast.model.run import Run, Status
from outlast.model.run_contents import Activity, DeadTask, Entry, Item, Snapshot, Task, Timer
from outlast.ports.port import Capability
from outlast.ports.store import Store

FOREVER = timedelta(days=365_000)
MANY = 10_000


class RunDump(Struct, frozen=True, kw_only=True):
    """One run and all that it owns."""

    run: Run
    events: list[Event] = []
    inbox: list[Item] = []
    timers: list[Timer] = []
    entries: list[Entry] = []
    activities: list[Activity] = []
    snapshot: Snapshot | None = None


class Dump(Struct, frozen=True, kw_only=True):
    """Everything at one moment. `timers`, `tasks` and `snapshots` are the lists over all runs, so
    that what is left of a deleted run shows; `listed` is what a search by status finds, and `counts`
    what the store says how many there are."""

    at: datetime
    runs: dict[str, RunDump] = {}
    listed: dict[Status, list[str]] = {}
    counts: dict[tuple[str, Status], int] = {}
    timers: list[Timer] = []
    tasks: list[Task] = []
    dead: list[DeadTask] = []
    snapshots: list[str] = []
    facts: dict[tuple[str, str], bytes] = {}
    keys: dict[tuple[str, str], str] = {}


async def dump(
    store: Store,
    *,
    run_ids: Collection[str] | None = None,
    queues: Collection[str] = ("default",),
    facts: Collection[tuple[str, str]] = (),
    keys: Collection[tuple[str, str]] = (),
    listed: bool = True,
) -> Dump:
    """Collect everything: all runs (or `run_ids`, for a store without FIND), the dead of `queues`,
    the facts named by (root, hash) and the keys named by (scope, key)."""
    can = store.capabilities
    now = await store.now()
    runs: dict[str, Run] = {}
    if Capability.FIND in can and run_ids is None:
        runs = {run.id: run async for run in store.find_all(RunQuery(limit=1000))}
    for id in run_ids or ():
        if (run := await store.find_one(id)) is not None:
            runs[id] = run
    return Dump(
        at=now,
        runs={id: await _owned(store, run) for id, run in sorted(runs.items())},
        listed=await _listed(store) if listed and Capability.FIND in can else {},
        counts=dict(await store.counts()) if listed and Capability.FIND in can else {},
        timers=await store.due_timers(now=now + FOREVER, limit=MANY)
        if Capability.TIMERS in can
        else [],
        tasks=await store.find_available_tasks(limit=MANY) if Capability.TASKS in can else [],
        dead=await _dead(store, queues),
        snapshots=await store.snapshot_ids(limit=MANY) if Capability.SNAPSHOTS in can else [],
        facts=await _facts(store, facts) if Capability.FACTS in can else {},
        keys=await _keys(store, keys) if Capability.KEYS in can else {},
    )


async def _owned(store: Store, run: Run) -> RunDump:
    can, id = store.capabilities, run.id
    return RunDump(
        run=run,
        events=await store.history(id),
        inbox=await _inbox(store, id) if Capability.INBOX in can else [],
        timers=await store.timers(id) if Capability.TIMERS in can else [],
        entries=await store.entries(id) if Capability.ENTRIES in can else [],
        activities=await store.activities(id) if Capability.ACTIVITIES in can else [],
        snapshot=await store.find_snapshot(id) if Capability.SNAPSHOTS in can else None,
    )


async def _inbox(store: Store, run_id: str) -> list[Item]:
    items: list[Item] = []
    while True:
        after = items[-1].number if items else 0
        page = await store.inbox(run_id, after=after, limit=1000)
        items += page
        if len(page) < 1000:
            return items


async def _listed(store: Store) -> dict[Status, list[str]]:
    found = {}
    for status in Status:
        query = RunQuery(status=frozenset({status}), limit=1000)
        found[status] = [run.id async for run in store.find_all(query)]
    return found


async def _dead(store: Store, queues: Collection[str]) -> list[DeadTask]:
    try:
        queue = store.queue()
    except Unsupported:
        return []
    async with queue:
        return [dead for name in queues for dead in await queue.dead(name, limit=MANY)]


async def _facts(store: Store, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], bytes]:
    found = {}
    for root, hash in names:
        if (fact := await store.find_fact(hash, root=root)) is not None:
            found[root, hash] = fact.data
    return found


async def _keys(store: Store, names: Collection[tuple[str, str]]) -> dict[tuple[str, str], str]:
    found = {}
    for scope, key in names:
        if (value := await store.recall(scope, key)) is not None:
            found[scope, key] = value
    return found
