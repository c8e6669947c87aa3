"""Commits: decide for all, then write for all. Writing cannot fail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from outlast.errors import Busy, DuplicateEvent, Fenced, NotFound, RunClosed
from outlast.model.commit import Commit, Committed, Creation, Outcome, Refusal
from outlast.model.commit_rules import again, parks, refusal
from outlast.model.event import Event
from outlast.model.ids import root_of
from outlast.model.run import Run
from outlast.model.run_contents import RECEIPTS_CARRIED, Receipt, Send
from outlast.model.times import EPOCH
from outlast.stores.memory.tables import Life, Tables, TableStore, private


class MemoryCommit(TableStore):
    """The one write."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        with self._locked() as tables:
            outcomes = commit_all(tables, commits, self.clock.now(), atomic=atomic)
        self.announce(commits, outcomes)
        return outcomes


def commit_all(
    tables: Tables, commits: Sequence[Commit], now: datetime, *, atomic: bool
) -> list[Outcome]:
    """The outcomes of `commits`, in order. The caller holds the lock."""
    decided: list[Outcome | None] = [_decide(tables, commit) for commit in commits]
    if atomic and any(isinstance(answer, Refusal) for answer in decided):
        held_back = Busy("not written: another commit of this atomic batch was refused")
        return [held_back if answer is None else answer for answer in decided]
    return [
        _write(tables, commit, now) if answer is None else answer
        for commit, answer in zip(commits, decided, strict=True)
    ]


def _decide(tables: Tables, commit: Commit) -> Outcome | None:
    life = tables.lives.get(commit.run_id)
    head = None if life is None else life.head
    answer: Outcome | None = again(commit, head) or refusal(commit, head)
    if answer is not None:
        return answer
    if life is not None and commit.creation is not Creation.REPLACE:
        for event in commit.events:
            if event.id in life.event_ids:
                return DuplicateEvent(commit.run_id, event.id, life.event_ids[event.id])
    for claim in commit.finishes:
        if tables.claimed(claim) is None:
            return Fenced(claim.subject, token=claim.token)
    return None


def _write(tables: Tables, commit: Commit, now: datetime) -> Committed:
    life = _life(tables, commit, now)
    run = life.run
    if commit.force:
        life.update(token=tables.next_token(), owner=None, claimed_until=None)
    if commit.hold is not None:
        until = now + timedelta(seconds=commit.hold.ttl)
        life.update(token=tables.next_token(), owner=commit.hold.owner, claimed_until=until)
    _append(life, commit.events, now)
    for number in commit.consumes:
        life.inbox.pop(number, None)
    if commit.change is not None:
        life.update(**private(commit.change).values())
    still_runnable = _park(life, commit, now)
    life.update(revision=run.revision + 1, commit_id=commit.id, updated_at=now)
    # Children first: an item may be for one of them.
    for start in commit.starts:
        if start.run.id not in tables.lives:
            child = _born(start.run, now)
            tables.lives[child.run.id] = child
            _append(child, start.events, now)
            if child.run.status.terminal:
                _end(tables, child, _ended_at(start.run, now))
    undelivered = tuple(
        send.item.id for send in commit.sends if not isinstance(deliver(tables, send, now), Receipt)
    )
    fired = _write_parts(tables, life, commit, now)
    if life.run.status.terminal and run.ended_at is None:
        born = commit.create if run.revision == 0 else None
        _end(tables, life, now if born is None else _ended_at(born, now))
    return Committed(
        run_id=commit.run_id,
        uid=life.run.uid,
        sequence=life.run.sequence,
        revision=life.run.revision,
        token=life.run.token,
        still_runnable=still_runnable,
        fired=fired,
        undelivered=undelivered,
    )


def _life(tables: Tables, commit: Commit, now: datetime) -> Life:
    present = tables.lives.get(commit.run_id)
    if commit.create is None or (present is not None and commit.creation is Creation.UPSERT):
        return tables.lives[commit.run_id]
    life = _born(commit.create, now)
    if present is not None:
        tables.forget(commit.run_id, spare=_spared(tables, commit))
        if commit.carry_inbox:
            last = present.run.inbox
            life.inbox = present.inbox
            life.item_ids = {
                id: number
                for id, number in present.item_ids.items()
                if number > last - RECEIPTS_CARRIED or number in life.inbox
            }
            life.update(inbox=last)
            if life.inbox:
                life.update(runnable_at=now)
    tables.lives[commit.run_id] = life
    return life


def _spared(tables: Tables, commit: Commit) -> list[str]:
    """The descendants of a run that stay when another life replaces it."""
    if commit.create is not None and commit.create.status.terminal:
        return []
    below = tables.below if commit.carry_tree else tables.open_below
    return below(commit.run_id)


def _born(record: Run, now: datetime) -> Life:
    runnable_at = record.runnable_at and max(record.runnable_at, now)
    run = msgspec.structs.replace(
        private(record),
        runnable_at=runnable_at,
        sequence=0,
        revision=0,
        token=0,
        owner=None,
        claimed_until=None,
        commit_id="",
        inbox=0,
        created_at=now if record.created_at == EPOCH else record.created_at,
        updated_at=now,
        ended_at=None,
    )
    return Life(run)


def _ended_at(record: Run, now: datetime) -> datetime:
    """When a run that is created with a terminal status ended: an import gives the time."""
    return record.ended_at if record.status.terminal and record.ended_at else now


def _append(life: Life, events: Sequence[Event], now: datetime) -> None:
    run = life.run
    for sequence, event in enumerate(events, run.sequence + 1):
        life.events.append(
            msgspec.structs.replace(
                event,
                metadata=dict(event.metadata),
                sequence=sequence,
                token=run.token,
                timestamp=now if event.timestamp == EPOCH else event.timestamp,
            )
        )
        life.event_ids[event.id] = sequence
    life.update(sequence=run.sequence + len(events))


def _park(life: Life, commit: Commit, now: datetime) -> bool:
    """Apply `runnable_at` and `release`; True if an item the owner has not seen forbids both."""
    if life.run.status.terminal:
        return False  # the end of a run sees to all of it
    unseen = any(number > commit.seen for number in life.inbox)
    wants_rest = parks(commit.change) or commit.release
    if parks(commit.change) and life.run.runnable_at is not None:
        life.update(runnable_at=max(life.run.runnable_at, now))
    if unseen and wants_rest:
        life.update(runnable_at=now)
        return True
    if commit.release:
        life.update(owner=None, claimed_until=None)
    return False


def _write_parts(tables: Tables, life: Life, commit: Commit, now: datetime) -> tuple[str, ...]:
    for claim in commit.finishes:
        tables.finish(claim)
    if commit.drops:
        tables.drop_tasks(commit.run_id, set(commit.drops))
    for task in commit.tasks:
        stamped = msgspec.structs.replace(task, uid=life.run.uid, enqueued_at=now)
        tables.add_task(stamped, max(task.run_at or now, now))
    for dead in commit.dead:
        tables.add_dead(dead, life.run.uid, now)
    for timer in commit.timers:
        life.timers.setdefault(timer.id, msgspec.structs.replace(timer, fired=False))
    fired = []
    for timer_id in commit.fired:
        known = life.timers.get(timer_id)
        if known is not None and not known.fired:
            life.timers[timer_id] = msgspec.structs.replace(known, fired=True)
            fired.append(timer_id)
    for fact in commit.facts:
        root = root_of(commit.run_id)
        tables.facts[root, fact.hash] = msgspec.structs.replace(fact, root=root)
    for entry in commit.entries:
        stamp = now if entry.timestamp == EPOCH else entry.timestamp
        life.entries.append(msgspec.structs.replace(entry, timestamp=stamp))
    for activity in commit.activities:
        for other in tables.lives.values():
            other.activities.pop(activity.id, None)
        life.activities[activity.id] = activity
    if commit.snapshot is not None:
        stamp = now if commit.snapshot.created_at == EPOCH else commit.snapshot.created_at
        life.snapshot = msgspec.structs.replace(commit.snapshot, created_at=stamp)
    return tuple(fired)


def _end(tables: Tables, life: Life, now: datetime) -> None:
    life.update(runnable_at=None, owner=None, claimed_until=None, ended_at=now)
    tables.drop_tasks(life.run.id)
    life.timers = {id: timer for id, timer in life.timers.items() if timer.fired}


def deliver(tables: Tables, send: Send, now: datetime) -> Receipt | Refusal:
    """Put one item into an inbox. The caller holds the lock."""
    life = tables.lives.get(send.run_id)
    if life is None:
        return NotFound("run", send.run_id)
    run = life.run
    if send.uid is not None and send.uid != run.uid:
        return Fenced(f"run {send.run_id!r}", token=None, current=run.token)
    known = life.item_ids.get(send.item.id)
    if known is not None:
        return Receipt(known, again=True)
    if run.status.terminal:
        return RunClosed(send.run_id, run.status)
    number = run.inbox + 1
    life.inbox[number] = msgspec.structs.replace(send.item, number=number, sent_at=now)
    life.item_ids[send.item.id] = number
    due = now if run.runnable_at is None else min(run.runnable_at, now)
    life.update(inbox=number, runnable_at=due)
    return Receipt(number)
