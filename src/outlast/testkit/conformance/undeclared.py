"""The other half of the contract: what a store does not declare raises `Unsupported`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from outlast.errors import Unsupported
from outlast.model import (
    Activity,
    Claim,
    Commit,
    Creation,
    Entry,
    Fact,
    Item,
    Run,
    RunQuery,
    Send,
    Snapshot,
    Start,
    Task,
    Timer,
    Worker,
)
from outlast.model.times import EPOCH
from outlast.ports import Capability, Store
from outlast.testkit.conformance.scenario import begin, event, unchanged

Call = Callable[[Store], Awaitable[object]]

RUN = "undeclared"
CHILD = "undeclared~child"
OTHER = "undeclared-other"
FACT = Fact.of(b"fact")
CLAIM = Claim(
    owner="worker", token=1, claimed_at=EPOCH, run_id=RUN, task_id="task", queue="default"
)
TIMER = Timer(run_id=RUN, id="timer", fire_at=EPOCH + timedelta(days=30_000))
ENTRY = Entry(run_id=RUN, step_id="step", action="completed")
ACTIVITY = Activity(id="activity", run_id=RUN)
SNAPSHOT = Snapshot(run_id=RUN, sequence=0, data=b"state")
ITEM = Send(run_id=RUN, item=Item(kind="signal"))


async def check_unsupported(store: Store, capability: Capability) -> None:
    """Every call and every part of a commit that needs `capability` is refused, and writes nothing."""
    if not await store.exists(RUN):
        await begin(store, RUN)
    async with unchanged(store, RUN, CHILD, OTHER):
        for call in CALLS[capability]:
            with pytest.raises(Unsupported) as caught:
                await call(store)
            # Part of the contract: `except NotImplementedError` catches it.
            assert isinstance(caught.value, NotImplementedError)


def _commit(commit: Commit) -> Call:
    return lambda store: store.commit([commit])


async def _find_all(store: Store) -> object:
    return [run async for run in store.find_all(RunQuery())]


CALLS: dict[Capability, tuple[Call, ...]] = {
    Capability.FIND: (
        lambda store: store.find(RunQuery()),
        lambda store: store.run_ids(),
        lambda store: store.counts(),
        _find_all,
    ),
    Capability.INBOX: (
        lambda store: store.send([ITEM]),
        lambda store: store.inbox(RUN),
        _commit(Commit(run_id=RUN, consumes=(1,))),
        _commit(Commit(run_id=RUN, sends=(ITEM,))),
    ),
    Capability.CHILDREN: (_commit(Commit(run_id=RUN, starts=(Start(Run(id=CHILD, parent=RUN)),))),),
    Capability.TASKS: (
        lambda store: store.claim_task(RUN, "task", "worker"),
        lambda store: store.find_available_tasks(),
        lambda store: store.send([], finishes=[CLAIM]),
        _commit(Commit(run_id=RUN, tasks=(Task(id="task", run_id=RUN),))),
        _commit(Commit(run_id=RUN, finishes=(CLAIM,))),
        _commit(Commit(run_id=RUN, drops=("task",))),
    ),
    Capability.TIMERS: (
        lambda store: store.timers(RUN),
        lambda store: store.due_timers(),
        lambda store: store.schedule_timer(TIMER),
        lambda store: store.mark_timer_fired(RUN, "timer"),
        _commit(Commit(run_id=RUN, timers=(TIMER,))),
    ),
    Capability.ENTRIES: (
        lambda store: store.entries(RUN),
        lambda store: store.record(ENTRY),
    ),
    Capability.ACTIVITIES: (
        lambda store: store.activities(RUN),
        lambda store: store.find_activity("activity"),
        lambda store: store.get_activity("activity"),
        lambda store: store.save_activity(ACTIVITY),
    ),
    Capability.SNAPSHOTS: (
        lambda store: store.find_snapshot(RUN),
        lambda store: store.load_snapshot(RUN),
        lambda store: store.drop_snapshot(RUN),
        lambda store: store.snapshot_ids(),
        lambda store: store.save_snapshot(SNAPSHOT),
    ),
    Capability.FACTS: (
        lambda store: store.find_fact(FACT.hash),
        lambda store: store.load_fact(FACT.hash),
        lambda store: store.put_fact(FACT),
        lambda store: store.save_fact(FACT.data),
        lambda store: store.drop_fact(FACT.hash),
        _commit(Commit(run_id=RUN, facts=(FACT,))),
    ),
    Capability.KEYS: (
        lambda store: store.remember("scope", "key", "value"),
        lambda store: store.recall("scope", "key"),
        lambda store: store.bind_start("key", RUN),
        lambda store: store.bound_run("key"),
        lambda store: store.first_activity("activity"),
    ),
    Capability.DELETE: (
        lambda store: store.delete(RUN),
        _commit(Commit(run_id=RUN, create=Run(id=RUN), creation=Creation.REPLACE)),
    ),
    Capability.RETENTION: (lambda store: store.expire(EPOCH),),
    Capability.ATOMIC_BATCH: (
        lambda store: store.commit(
            [Commit(run_id=RUN), Commit(run_id=OTHER, create=Run(id=OTHER))], atomic=True
        ),
        lambda store: store.append_events([event(RUN, sequence=1), event(OTHER, sequence=1)]),
    ),
    Capability.OWNER_GONE: (lambda store: store.owner_gone("worker"),),
    Capability.WORKERS: (
        lambda store: store.heartbeat(Worker(owner="worker"), 30),
        lambda store: store.leave("worker"),
        lambda store: store.workers(),
    ),
    Capability.MOVE: (
        lambda store: store.contents(RUN),
        lambda store: store.skip_tokens(1),
    ),
}
"""What needs which capability, through the port."""
