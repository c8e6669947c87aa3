"""Runs of every kind, furnished with all that a run can own, and a look at them that can be compared."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from msgspec import Raw

import outlast
from outlast.model import (
    Activity,
    Change,
    Commit,
    DeadTask,
    Entry,
    Event,
    Fact,
    Item,
    Run,
    RunQuery,
    Send,
    Snapshot,
    Status,
    Task,
    Timer,
)
from outlast.ports.store import Store

DIED = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


@outlast.step
async def pack(bags: int) -> int:
    return bags + 1


@outlast.step(queue="far")
async def fly(bags: int) -> int:
    return bags * 10


@outlast.workflow
async def leg(bags: int) -> int:
    await outlast.wait_for_signal("land")
    return await pack(bags)


@outlast.workflow
async def short(bags: int) -> int:
    return await pack(bags)


@outlast.workflow
async def trip(name: str) -> list[int]:
    bags = await pack(1)
    await outlast.wait_for_signal("go")
    outlast.publish(bags=bags)
    landed = await asyncio.gather(
        leg(bags), outlast.child(leg(bags), id=f"guide-{name}"), fly(bags)
    )
    await outlast.wait_for_signal("home")
    return list(landed)


WORKFLOWS: list[outlast.Workflow[..., Any]] = [trip, leg, short]


async def furnish(store: Store) -> None:
    """Runs that wait, have ended, are somebody's children, or belong to an engine of another's."""
    async with outlast.App(store, workflows=WORKFLOWS) as app:
        for name in ("a", "b"):
            await app.start(trip(name), id=f"trip-{name}", attributes={"tenant": name})
            await app.get(f"trip-{name}").signal("go", dedup="once")
        await app.start(short(5), id="ended")
        await app.get("ended").result()
        for name in ("a", "b"):
            await _until(app, f"trip-{name}", Status.WAITING)
            await _until(app, f"guide-{name}", Status.WAITING)
            await _until(app, f"trip-{name}~0/child.leg", Status.WAITING)
        await app.get("trip-a").signal("much later", {"x": 1})
    run = Run(id="plain", workflow="other", input=Raw(b'{"a":1}'), ctx={"k": Raw(b"2")})
    tasks = tuple(Task(id=id, run_id="plain", queue="own", input=Raw(b"3")) for id in ("t", "u"))
    timers = tuple(Timer(run_id="plain", id=id, fire_at=FAR_AWAY) for id in ("tick", "tock"))
    items = tuple(Item(kind="signal", name=name, id=name) for name in ("one", "two", "three"))
    await store.commit(
        [
            Commit(
                run_id="plain",
                create=run,
                events=tuple(
                    Event(type="own", run_id="plain", data=Raw(b"[%d]" % n)) for n in (1, 2)
                ),
                tasks=tasks,
                dead=(DeadTask(Task(id="lost", run_id="plain", queue="own"), "it burns", DIED),),
                timers=timers,
                facts=(Fact.of(b"a fact"), Fact.of(b"another")),
                entries=(Entry(run_id="plain", step_id="s", action="completed"),),
                activities=(Activity(id="act", run_id="plain"),),
                snapshot=Snapshot(run_id="plain", sequence=2, data=b"total"),
                sends=tuple(Send(run_id="plain", item=item) for item in items),
            )
        ]
    )
    await store.remember("start", "a key", "plain", run_id="plain")
    change = Change(status=Status.WAITING, wait_kind="own", runnable_at=FAR_AWAY, error="so far")
    await store.commit(
        [Commit(run_id="plain", consumes=(1, 3), fired=("tick",), change=change, seen=3)]
    )
    assert await store.claim_task("plain", "u", "somebody", ttl=3600)


async def _until(app: outlast.App, run_id: str, status: Status) -> None:
    while True:
        wakeups = app.store.notifier.wakeups
        run = await app.store.find_one(run_id)
        if run is not None and run.status is status and run.owner is None:
            return
        await app.store.notifier.wait(app.store.clock, 0.2, since=wakeups)


async def look(store: Store) -> dict[str, dict[str, Any]]:
    """All runs that are here and not elsewhere, with everything that they own."""
    return {
        run.id: await owned_by(store, run)
        async for run in store.find_all(RunQuery())
        if run.moved_to is None
    }


async def owned_by(store: Store, run: Run) -> dict[str, Any]:
    owned = await store.contents(run.id)
    now = await store.now()
    due = run.runnable_at
    return {
        "record": (
            run.uid, run.workflow, run.version, run.definition, run.status, run.wait_kind,
            run.input, run.ctx, run.current_step, run.result, run.error, run.halt_data,
            run.recover_to, run.attributes, run.parent, run.queue, run.priority, run.created_at,
            run.ended_at, run.sequence,
        ),
        "due": due if due is None or due > now else "now",
        "events": [
            (e.sequence, e.id, e.type, e.version, e.step_name, e.timestamp, e.data, e.output)
            for e in await store.history(run.id)
        ],
        "items": [
            (item.id, item.kind, item.name, item.data)
            for item in await store.inbox(run.id, limit=1000)
        ],
        "receipts": set() if run.status.terminal else set(owned.receipts),
        "timers": [(one.id, one.fire_at, one.fired) for one in await store.timers(run.id)],
        "tasks": sorted((one.queue, one.id, one.uid, one.input) for one in owned.tasks),
        "dead": [(one.task.queue, one.task.id, one.reason, one.died_at) for one in owned.dead],
        "keys": owned.keys,
        "facts": owned.facts,
        "entries": [(one.id, one.timestamp) for one in await store.entries(run.id)],
        "activities": [one.id for one in await store.activities(run.id)],
        "snapshot": getattr(await store.find_snapshot(run.id), "data", None),
    }  # fmt: skip


async def finish(store: Store) -> dict[str, list[int]]:
    """Let the trips come to their end here; what they brought."""
    async with outlast.App(store, workflows=WORKFLOWS, steps=[fly]) as app:
        for name in ("a", "b"):
            # What was consumed in another store is not taken again.
            await app.get(f"trip-{name}").signal("go", dedup="once")
            await app.get(f"trip-{name}~0/child.leg").signal("land")
            await app.get(f"guide-{name}").signal("land")
            await app.get(f"trip-{name}").signal("home")
        return {name: await app.get(f"trip-{name}").result(timeout=60) for name in ("a", "b")}


FINISHED = {"a": [3, 3, 20], "b": [3, 3, 20]}
