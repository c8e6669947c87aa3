"""Commits that begin runs are written together: what stands in the same batch must not notice."""

from __future__ import annotations

import pytest

from outlast.model import Change, Commit, Event, Item, Run, Send, Status
from outlast.model.claim import Hold
from outlast.model.times import NOW
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.stores.postgres import PostgresStore
from outlast.testing.clock import ManualClock

pytestmark = pytest.mark.server


def begin(id: str, change: Change | None = None, *, release: bool = False) -> Commit:
    """A run that its writer holds."""
    return Commit(
        run_id=id,
        create=Run(id=id, uid=f"{id}-1", workflow="w", runnable_at=NOW, attributes={"a": 1}),
        hold=Hold("w-1", 30),
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
