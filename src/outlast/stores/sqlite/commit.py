"""Commits: decide for all, then write for all, in one transaction.

The decision is `outlast.model.commit_rules`, on heads read under the writer's lock. One refusal is
not looked up beforehand: an event id that is recorded already. The unique index reports it when the
events are inserted; then the transaction is rolled back and repeated with a lookup (`careful`). Ids
are new as a rule, and inserting has to search the index anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from outlast.errors import Busy, DuplicateEvent, Fenced
from outlast.model.commit import Commit, Committed, Creation, Outcome, Refusal
from outlast.model.commit_rules import Head, again, parks, refusal
from outlast.model.run_contents import RECEIPTS_CARRIED, Receipt
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.database import UNKNOWN_ROWS
from outlast.stores.sqlite.delete import end_run, find_open, find_tree, forget_tree
from outlast.stores.sqlite.driver_errors import Collision
from outlast.stores.sqlite.inbox import deliver, has_unseen
from outlast.stores.sqlite.rows import STATUS, RunRow
from outlast.stores.sqlite.run_details import write_contents
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.tasks import find_held
from outlast.stores.sqlite.unit_of_work import UnitOfWork

FIND_EVENT = query("find_event")
CONSUME_ITEMS = query("consume_items")
CARRY_ITEMS = query("carry_items")
CARRY_RECEIPTS = query("carry_receipts")


class SqliteCommit(SessionStore):
    """The one write."""

    async def commit(
        self, commits: Sequence[Commit], *, atomic: bool = False, timeout: float | None = None
    ) -> list[Outcome]:
        rows = rows_of(commits)
        for commit in commits:
            if commit.hold is not None:
                await self._session.register_owner(commit.hold.owner, self.clock, timeout=timeout)

        def work(db: Connection, *, careful: bool = False) -> list[Outcome]:
            return commit_all(db, commits, self.clock.now(), atomic=atomic, careful=careful)

        written: list[Outcome] | None = None
        try:
            written = await self._session.write(work, rows=rows, timeout=timeout)
            return written
        except Collision:
            # An event id is recorded already, and nothing was written: look up which.
            written = await self._session.write(
                lambda db: work(db, careful=True), rows=rows, timeout=timeout
            )
            return written
        finally:
            # Also after a cancellation or a timeout: the write may still happen.
            self.announce(commits, written)


def commit_all(
    connection: Connection,
    commits: Sequence[Commit],
    now: datetime,
    *,
    atomic: bool,
    careful: bool,
) -> list[Outcome]:
    """The outcomes of `commits`, in order. Without `careful`, raises `Collision` if an event id is
    recorded already."""
    unit = UnitOfWork(connection, now)
    unit.load(_run_ids(commits))
    decided = [_decide(unit, commit, careful=careful) for commit in commits]
    if atomic and any(isinstance(answer, Refusal) for answer in decided):
        # Nothing will be inserted, so the index cannot report duplicates: look them up.
        decided = [_decide(unit, commit, careful=True) for commit in commits]
        held_back = Busy("not written: another commit of this atomic batch was refused")
        return [held_back if answer is None else answer for answer in decided]
    outcomes = [
        _write(unit, commit) if answer is None else answer
        for commit, answer in zip(commits, decided, strict=True)
    ]
    unit.write()
    return outcomes


def rows_of(commits: Sequence[Commit]) -> int:
    """About how many rows these commits write."""
    return sum(
        1 + len(commit.events) + len(commit.sends) + len(commit.starts) + len(commit.tasks)
        + len(commit.dead) + len(commit.entries)
        + UNKNOWN_ROWS * (commit.creation is Creation.REPLACE)
        for commit in commits
    )  # fmt: skip


def _run_ids(commits: Sequence[Commit]) -> list[str]:
    ids = [commit.run_id for commit in commits]
    for commit in commits:
        if commit.sends:
            ids += [send.run_id for send in commit.sends]
        if commit.starts:
            ids += [start.run.id for start in commit.starts]
    return ids


def _decide(unit: UnitOfWork, commit: Commit, *, careful: bool) -> Outcome | None:
    row = unit.find(commit.run_id)
    head = None
    if row is not None:
        head = Head(
            row.uid, STATUS[row.status], row.sequence, row.revision, row.token, row.commit_id
        )
    answer: Outcome | None = again(commit, head) or refusal(commit, head)
    if answer is not None:
        return answer
    lost = None
    if commit.finishes:
        lost = next((c for c in commit.finishes if find_held(unit.connection, c) is None), None)
    if (careful or lost) and row is not None and commit.creation is not Creation.REPLACE:
        # Duplicates come before lost claims in the rules, or nothing will be inserted.
        for event in commit.events:
            found = unit.connection.execute(FIND_EVENT, (row.key, event.id)).fetchall()
            if found:
                return DuplicateEvent(commit.run_id, event.id, found[0][0])
    if lost is not None:
        return Fenced(lost.subject, token=lost.token)
    return None


def _write(unit: UnitOfWork, commit: Commit) -> Committed:
    row = _life(unit, commit)
    was_open = row.is_new or row.ended_at is None
    if commit.force:
        _own(row, unit.counters.next_token(), owner=None, until=None)
    if commit.hold is not None:
        until = unit.now + timedelta(seconds=commit.hold.ttl) // timedelta(microseconds=1)
        _own(row, unit.counters.next_token(), owner=commit.hold.owner, until=until)
    if commit.events:
        unit.append(row, commit.events)
    if commit.consumes:
        unit.connection.executemany(
            CONSUME_ITEMS, [(row.key, number) for number in commit.consumes]
        )
    if commit.change is not None:
        unit.change(row, commit.change)
    still_runnable = _park(unit, row, commit)
    row.revision += 1
    row.commit_id = commit.id
    row.updated_at = unit.now
    row.is_changed = True
    # Children first: an item may be for one of them.
    for start in commit.starts:
        if unit.find(start.run.id) is None:
            child = unit.begin(start.run)
            unit.append(child, start.events)
            if child.is_terminal:
                end_run(unit, child)
    undelivered: tuple[str, ...] = ()
    if commit.sends:
        undelivered = tuple(
            send.item.id for send in commit.sends if not isinstance(deliver(unit, send), Receipt)
        )
    fired = write_contents(unit, row, commit)
    if was_open and (row.is_new or row.is_moved) and row.is_terminal:
        end_run(unit, row)
    return Committed(
        run_id=commit.run_id,
        uid=row.uid,
        sequence=row.sequence,
        revision=row.revision,
        token=row.token,
        still_runnable=still_runnable,
        fired=fired,
        undelivered=undelivered,
    )


def _life(unit: UnitOfWork, commit: Commit) -> RunRow:
    present = unit.find(commit.run_id)
    if present is not None and (commit.create is None or commit.creation is Creation.UPSERT):
        return present
    assert commit.create is not None, "decided: there is a run, or one to create"
    if present is None:
        return unit.begin(commit.create)
    # What earlier commits of this batch have written to the old tree is deleted with it.
    unit.write()
    row = unit.begin(commit.create)
    if commit.carry_inbox:
        unit.connection.execute(CARRY_ITEMS, (row.key, present.key))
        after = present.inbox - RECEIPTS_CARRIED
        unit.connection.execute(
            CARRY_RECEIPTS, {"new": row.key, "old": present.key, "after": after}
        )
        row.inbox = present.inbox
        if has_unseen(unit.connection, row, 0):
            row.runnable_at = unit.now
    spared: set[str] = set()
    if not commit.create.status.terminal:
        find = find_tree if commit.carry_tree else find_open
        spared = {*find(unit.connection, commit.run_id)} - {commit.run_id}
    gone = forget_tree(unit.connection, commit.run_id, spare=spared)
    unit.forget(run_id for run_id in gone if run_id != commit.run_id)
    return row


def _own(row: RunRow, token: int, *, owner: str | None, until: int | None) -> None:
    row.token, row.owner, row.claimed_until = token, owner, until
    row.is_moved = True


def _park(unit: UnitOfWork, row: RunRow, commit: Commit) -> bool:
    """Apply `release`, unless an item waits that the owner has not seen: then True."""
    if not (commit.release or parks(commit.change)) or row.is_terminal:
        return False  # `end_run` does all of it
    if has_unseen(unit.connection, row, commit.seen):
        row.runnable_at = unit.now
        row.is_moved = True
        return True
    if commit.release:
        row.owner = row.claimed_until = None
        row.is_moved = True
    return False
