"""Admission: a run that is started in a queue waits there for its turn.

::

    start(queue=…) ── the run, pending, and its ticket: a task in the queue ── one commit
    worker         ── takes the ticket when the queue's policy allows it
                   ── send(admit, keeps=[ticket]) ── the run is runnable, and its ticket stays in flight
    the run's end  ── drops its ticket with all its tasks: another run can be admitted
    parked, since no code fits ── drops its ticket; to continue, it gets another and waits again

So a run counts against the queue's concurrency from its admission until it ends or is parked, however often its owner
changes. Messages to a run before its admission wait in its inbox; only a cancel takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.engine.replay.commit_builder import QUEUED, TICKET, ticket_of
from outlast.engine.replay.completion import child_outcome
from outlast.model.claim import Claim
from outlast.model.commit import Commit
from outlast.model.event import Event, payload_of, to_event
from outlast.model.payloads import WorkflowCancelled, WorkflowStarted
from outlast.model.run import Change, Run, Status
from outlast.model.run_contents import Item, ItemKind, Send, Task
from outlast.ports.clock import read_with_retry
from outlast.ports.port import Capability
from outlast.ports.store import Store

ADMIT = ItemKind.ADMIT
PAGE = 1000


def admission(ticket: Task) -> Send:
    """The message that admits a run."""
    turn = ticket.metadata.get("turn", "0")
    item = Item(kind=ADMIT, name=ticket.queue, id=f"{ADMIT} {ticket.uid} {turn}")
    return Send(run_id=ticket.run_id, uid=ticket.uid, item=item)


async def turned_away(
    store: Store, events: Sequence[Event], run: Run, claim: Claim, *, timeout_s: float
) -> Commit | None:
    """The commit for a run that was claimed before its admission: it waits on, or is cancelled. None if it was
    admitted, or waits in no queue."""
    was_parked = run.is_parked
    may_wait = run.status is Status.PENDING or was_parked
    started = payload_of(events[0]) if events and may_wait else None
    if not isinstance(started, WorkflowStarted) or started.place is None:
        return None
    items = await _inbox(store, run.id, timeout_s)
    if admissions(items, run.uid):
        return None
    base = Commit(
        run_id=run.id,
        uid=claim.uid,
        token=claim.token,
        expected=run.sequence,
        seen=items[-1].number if items else 0,
        release=True,
    )
    for item in items:
        if item.kind == ItemKind.CANCEL:
            # A run that had started before has steps to undo.
            return None if run.sequence > 1 else _cancelled(base, run, item, started.parent_uid)
    # A child, and a run that is started again, are created without a ticket and get it here.
    tickets = () if run.wait_kind == QUEUED else (ticket_of(run, started.place),)
    change = Change(
        status=Status.PENDING,
        wait_kind=QUEUED,
        queue=started.place.queue,
        priority=started.place.priority,
        runnable_at=None,
    )
    return msgspec.structs.replace(base, change=change, tasks=tickets)


def admissions(items: Sequence[Item], uid: str) -> tuple[int, ...]:
    """The numbers of the items that admit a life."""
    own = f"{ADMIT} {uid} "
    return tuple(item.number for item in items if item.kind == ADMIT and item.id.startswith(own))


async def leaves_queue(store: Store, commit: Commit, *, timeout_s: float) -> Commit:
    """A commit that parks a run, changed so that it drops its ticket."""
    if Capability.TASKS not in store.capabilities:
        return commit
    consumes = admissions(await _inbox(store, commit.run_id, timeout_s), commit.uid or "")
    return msgspec.structs.replace(commit, drops=(TICKET,), consumes=consumes)


def _cancelled(base: Commit, run: Run, item: Item, asked_by: str) -> Commit:
    end = WorkflowCancelled(reason=item.name)
    return msgspec.structs.replace(
        base,
        events=(to_event(end, run_id=run.id),),
        change=Change(status=Status.CANCELLED, error=item.name, wait_kind=None),
        consumes=(item.number,),
        sends=() if run.parent is None else (child_outcome(run, end, asked_by),),
    )


async def _inbox(store: Store, run_id: str, timeout_s: float) -> list[Item]:
    items: list[Item] = []

    async def more(seconds: float) -> list[Item]:
        after = items[-1].number if items else 0
        return await store.inbox(run_id, after=after, limit=PAGE, timeout=seconds)

    while True:
        page = await read_with_retry(store.clock, more, timeout_s)
        items += page
        if len(page) < PAGE:
            return items
