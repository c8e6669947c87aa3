"""Possessions: everything that a run can own, to see that it goes when the run goes."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from outlast.model import (
    Activity,
    Commit,
    Entry,
    Fact,
    Run,
    Snapshot,
    Start,
    Task,
    Timer,
)
from outlast.model.times import NOW
from outlast.ports import Capability, Store
from outlast.testkit.conformance.scenario import (
    begin,
    deliver,
    done,
    event,
    events,
    everything,
    signal,
)

FACT = Fact.of(b"a fact of the tree")


async def furnish(store: Store, run_id: str = "r") -> dict[str, object]:
    """Give a run one of everything that the store can hold. Returns what is then seen of it."""
    can = store.capabilities
    now = await store.now()
    own: dict[Capability, dict[str, object]] = {
        Capability.TIMERS: {
            "timers": (Timer(run_id=run_id, id="t", fire_at=now + timedelta(hours=1)),)
        },
        Capability.TASKS: {
            "tasks": (Task(id="open", run_id=run_id), Task(id="held", run_id=run_id))
        },
        Capability.ENTRIES: {"entries": (Entry(run_id=run_id, step_id="s", action="completed"),)},
        Capability.ACTIVITIES: {"activities": (Activity(id=f"a-{run_id}", run_id=run_id),)},
        Capability.SNAPSHOTS: {"snapshot": Snapshot(run_id=run_id, sequence=2, data=b"s")},
        Capability.FACTS: {"facts": (FACT,)},
        Capability.CHILDREN: {
            "starts": (
                Start(
                    Run(id=f"{run_id}~child", parent=run_id, runnable_at=NOW),
                    events(f"{run_id}~child", 1),
                ),
            )
        },
    }
    parts = {
        name: value for need, part in own.items() if need in can for name, value in part.items()
    }
    await begin(store, run_id, event(run_id, id="first"), event(run_id), runnable_at=NOW)
    await done(store, msgspec.structs.replace(Commit(run_id=run_id), **parts))
    if Capability.INBOX in can:
        await deliver(store, signal(run_id, id="item"))
    if Capability.TASKS in can:
        assert await store.claim_task(run_id, "held", "worker") is not None
    if Capability.KEYS in can:
        await store.remember("scope", f"key of {run_id}", "1", run_id=run_id)
    return await seen_of(store, run_id)


async def seen_of(store: Store, run_id: str) -> dict[str, object]:
    """All that can be seen of a furnished run. Of a run that was deleted, nothing should be."""
    can = store.capabilities
    found = await everything(store, run_id, f"{run_id}~child")
    if Capability.FACTS in can:
        found["fact"] = await store.find_fact(FACT.hash, root=run_id)
    if Capability.ACTIVITIES in can:
        found["activity"] = await store.find_activity(f"a-{run_id}")
    if Capability.KEYS in can:
        found["key"] = await store.recall("scope", f"key of {run_id}")
    return found
