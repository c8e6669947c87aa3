"""What the tests of the kit are written with: a run, an event, a claim, a read of everything.

All of it goes through the port, so that it works on any store.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, ParamSpec, TypeVar

from msgspec import Raw

from outlast.errors import Busy
from outlast.model import (
    Change,
    Claim,
    Commit,
    Committed,
    Event,
    Item,
    Outcome,
    Receipt,
    Run,
    RunQuery,
    Send,
    Status,
)
from outlast.model.times import NOW
from outlast.ports import Capability, Store

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

WORKFLOW = "order"
TTL = 60.0
"""The lease of a claim in these stories. Time is moved by half of it, or past it, never close to
it, so that a server's own clock may tick on in between."""


def event(run_id: str, **fields: Any) -> Event:
    """An event of a run, with an id of its own."""
    return Event(**{"type": "step.completed", "run_id": run_id, **fields})


def events(run_id: str, count: int) -> tuple[Event, ...]:
    """`count` events with distinct data."""
    return tuple(event(run_id, data=Raw(b'{"n":%d}' % n)) for n in range(1, count + 1))


def change(**fields: Any) -> Change:
    """A change of fields that are chosen by name."""
    return Change(**fields)


async def begin(store: Store, run_id: str, *own: Event, **record: Any) -> Committed:
    """Create a run with these events. It is parked unless `runnable_at` says otherwise."""
    run = Run(**{"id": run_id, "workflow": WORKFLOW, **record})
    return await done(store, Commit(run_id=run_id, create=run, events=own))


async def begin_runnable(store: Store, *run_ids: str, **record: Any) -> None:
    """Create runs that can be claimed at once."""
    for run_id in run_ids:
        await begin(store, run_id, **{"runnable_at": NOW, **record})


async def outcome_of(store: Store, commit: Commit) -> Outcome:
    """What becomes of one commit."""
    (outcome,) = await store.commit([commit])
    return outcome


async def done(store: Store, commit: Commit) -> Committed:
    """Make a commit that has to be accepted."""
    outcome = await outcome_of(store, commit)
    assert isinstance(outcome, Committed), outcome
    return outcome


async def refused(store: Store, commit: Commit, refusal: type[R]) -> R:
    """Make a commit that has to be refused for this reason, and leave no trace of it."""
    async with unchanged(store, commit.run_id):
        outcome = await outcome_of(store, commit)
    assert isinstance(outcome, refusal), outcome
    return outcome


async def take(store: Store, run_id: str, *, owner: str = "worker", ttl: float = TTL) -> Claim:
    """Claim an unclaimed run."""
    (claimed,) = await store.claim_runs(owner, ttl, run_ids=[run_id])
    return claimed.claim


async def claimed_ids(store: Store, *, owner: str = "claimer", limit: int = 100) -> list[str]:
    """Claim all that is available, and say which runs that were."""
    return [one.run.id for one in await store.claim_runs(owner, TTL, limit=limit)]


async def finish(
    store: Store, run_id: str, status: Status = Status.COMPLETED, *, token: int | None = None
) -> Committed:
    """End a run."""
    return await done(store, Commit(run_id=run_id, token=token, change=Change(status=status)))


def signal(run_id: str, name: str = "approved", **fields: Any) -> Send:
    """A signal to a run, with an id of its own."""
    uid = fields.pop("uid", None)
    return Send(run_id=run_id, item=Item(**{"kind": "signal", "name": name, **fields}), uid=uid)


async def deliver(store: Store, send: Send) -> Receipt:
    """Send something that has to arrive."""
    (receipt,) = await store.send([send])
    assert isinstance(receipt, Receipt), receipt
    return receipt


async def patiently(call: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do a call, again while the store says that it is busy, as every caller has to."""
    for _ in range(10_000):
        try:
            return await call(*args, **kwargs)
        except Busy:
            await asyncio.sleep(0)
    raise AssertionError("the store stays busy: no call succeeds")


async def commit_patiently(store: Store, commit: Commit) -> Outcome:
    """Make a commit, again while its run is locked by another."""
    for _ in range(10_000):
        outcome = await outcome_of(store, commit)
        if not isinstance(outcome, Busy):
            return outcome
        await asyncio.sleep(0)
    raise AssertionError("the store stays busy: no call succeeds")


async def gathered(found: AsyncIterator[T], *, most: int = 20_000) -> list[T]:
    """All that an iterator yields. A store that never comes to an end fails, and does not hang."""
    items: list[T] = []
    async for item in found:
        items.append(item)
        assert len(items) <= most, "this goes on for ever: what comes next never advances"
    return items


@asynccontextmanager
async def unchanged(store: Store, *run_ids: str) -> AsyncIterator[None]:
    """Whatever happens inside, the store holds the same before and after."""
    before = await everything(store, *run_ids)
    yield
    assert await everything(store, *run_ids) == before


async def everything(store: Store, *run_ids: str) -> dict[str, object]:
    """All that the port shows of these runs, and all that it lists over all runs."""
    can = store.capabilities
    found = await owned(store, *run_ids)
    if Capability.FIND in can:
        found["runs"] = await gathered(store.find_all(RunQuery()))
    if Capability.TASKS in can:
        found["tasks"] = await store.find_available_tasks(limit=1000)
    if Capability.TIMERS in can:
        later = await store.now() + timedelta(days=36_500)
        found["due timers"] = await store.due_timers(now=later, limit=1000)
    if Capability.SNAPSHOTS in can:
        found["snapshots"] = await store.snapshot_ids()
    return found


async def owned(store: Store, *run_ids: str) -> dict[str, object]:
    """All that the port shows of these runs: record, history, and what they own."""
    can = store.capabilities
    found: dict[str, object] = {}
    for run_id in run_ids:
        found[f"{run_id}: run"] = await store.find_one(run_id)
        found[f"{run_id}: history"] = await store.history(run_id)
        if Capability.INBOX in can:
            found[f"{run_id}: inbox"] = await store.inbox(run_id)
        if Capability.TIMERS in can:
            found[f"{run_id}: timers"] = await store.timers(run_id)
        if Capability.ENTRIES in can:
            found[f"{run_id}: entries"] = await store.entries(run_id)
        if Capability.ACTIVITIES in can:
            found[f"{run_id}: activities"] = await store.activities(run_id)
        if Capability.SNAPSHOTS in can:
            found[f"{run_id}: snapshot"] = await store.find_snapshot(run_id)
    return found
