"""Does the work get done: workers, runs that nobody takes, runs on their way, dead tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from outlast.cli.checkup.findings import Finding
from outlast.cli.commands.queues import queue_names
from outlast.cli.commands.workers import workers_of
from outlast.cli.moments import ago, length
from outlast.errors import Unsupported
from outlast.model.run import MOVING, Run
from outlast.ports.capability import Capability
from outlast.ports.store import Store
from outlast.query import count, parse, search

STUCK_AFTER = timedelta(minutes=1)
LOOKED_AT = 10_000


async def life_of(store: Store) -> AsyncIterator[Finding]:
    """What goes on in a store."""
    if Capability.WORKERS in store.capabilities:
        async for finding in _workers(store):
            yield finding
        async for finding in _troubles(store):
            yield finding
    if Capability.FIND in store.capabilities:
        async for finding in _runs(store):
            yield finding
        async for finding in _moving(store):
            yield finding
    async for finding in _unserved(store):
        yield finding
    async for finding in _dead(store):
        yield finding


async def _workers(store: Store) -> AsyncIterator[Finding]:
    known = await workers_of(store)
    now = await store.now()
    alive = [worker for worker, lives in known if lives]
    many = "1 worker lives" if len(alive) == 1 else f"{len(alive)} workers live"
    yield Finding("ok", many if alive else "no worker is running")
    for worker, lives in known:
        if not lives:
            yield Finding(
                "warning",
                f"worker {worker.owner} on {worker.host} (pid {worker.pid}) fell silent "
                f"{ago(worker.seen_at, now)} without having stopped; it held {worker.runs} runs",
                "others take over what it held when its leases end. Look why it ended: was it "
                "killed, out of memory, cut off? It is forgotten after a day",
            )


async def _troubles(store: Store) -> AsyncIterator[Finding]:
    for worker, lives in await workers_of(store):
        for run_id, trouble in worker.troubles.items() if lives else ():
            yield Finding(
                "problem",
                f"run {run_id} is stuck in worker {worker.owner}: {trouble}",
                f"outlast why {run_id}; restart that worker, and report it with outlast export {run_id}",
            )


async def _runs(store: Store) -> AsyncIterator[Finding]:
    now = await store.now()
    page = await search(store, parse("status:open"), limit=LOOKED_AT, budget=LOOKED_AT)
    late = now - STUCK_AFTER
    stuck = [run for run in page.runs if _due(run, late) and not _held(run, now)]
    mismatched = [run for run in page.runs if run.wait_kind == "mismatch"]
    if stuck:
        names = ", ".join(sorted({run.workflow for run in stuck}))
        yield Finding(
            "problem",
            f"{len(stuck):,} runs could go on for more than {length(STUCK_AFTER.total_seconds())} "
            f"and no worker takes them ({names}), such as {stuck[0].id}",
            f"start a worker that has their code: outlast worker MODULE:APP; then outlast why "
            f"{stuck[0].id}",
        )
    if mismatched:
        yield Finding(
            "problem",
            f"{len(mismatched):,} runs are parked because their code and their history disagree, "
            f"such as {mismatched[0].id}",
            f"outlast why {mismatched[0].id}; deploy code that fits: its workers take them up by themselves. "
            "To try them again with code that was tried: outlast resume --where 'wait:mismatch'",
        )
    if not stuck and not mismatched:
        more = "the newest " if page.next is not None else ""
        yield Finding("ok", f"none of {more}{len(page.runs):,} open runs is stuck")


def _due(run: Run, late: datetime) -> bool:
    return run.runnable_at is not None and run.runnable_at < late and run.updated_at < late


def _held(run: Run, now: datetime) -> bool:
    return run.owner is not None and run.claimed_until is not None and run.claimed_until > now


async def _moving(store: Store) -> AsyncIterator[Finding]:
    sealed = parse(f"status:cancelled wait:{MOVING}")
    number = await count(store, sealed)
    if number.number:
        page = await search(store, sealed, limit=1)
        where = next((run.moved_to for run in page.runs), None) or "URL"
        yield Finding(
            "problem",
            f"{number} runs are sealed because they are being moved to {where}, and go on nowhere "
            "until that is done",
            f"outlast move --to {where}, unless one is under way",
        )


async def _unserved(store: Store) -> AsyncIterator[Finding]:
    """Queued steps that have been ready for a while in a queue that no living worker serves."""
    if not {Capability.WORKERS, Capability.TASKS} <= store.capabilities:
        return
    served = {name for worker, lives in await workers_of(store) if lives for name in worker.queues}
    now = await store.now()
    for name in await queue_names(store):
        if name in served:
            continue
        for task in await store.find_available_tasks(queue=name, limit=1):
            if task.run_id and task.enqueued_at < now - STUCK_AFTER:
                yield Finding(
                    "problem",
                    f"steps wait in queue {name} since {ago(task.enqueued_at, now)}, and no worker that "
                    f"lives serves it; one of them is of run {task.run_id}",
                    f"start a worker that has their code: outlast worker MODULE:APP; then outlast why "
                    f"{task.run_id}",
                )


async def _dead(store: Store) -> AsyncIterator[Finding]:
    try:
        queue = store.queue()
    except Unsupported:
        return
    async with queue:
        for name in await queue_names(store):
            dead = await queue.dead(name, limit=1_000)
            if dead:
                many = "1 task is" if len(dead) == 1 else f"{len(dead):,} tasks are"
                yield Finding(
                    "warning",
                    f"{many} dead in queue {name}: {dead[0].reason}",
                    f"outlast dead ls {name}, then outlast dead redrive {name}",
                )
