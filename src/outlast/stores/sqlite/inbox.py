"""Inboxes: items are numbered by the run, received once by id, removed by the commit that consumes
them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from outlast.errors import Fenced, NotFound, RunClosed
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run_contents import Item, Receipt, Send, refusing
from outlast.model.times import from_micros
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.rows import STATUS, RunRow, payload, raw
from outlast.stores.sqlite.schema import query
from outlast.stores.sqlite.session import SessionStore
from outlast.stores.sqlite.tasks import find_alive, find_held, finish_tasks, keep_tasks
from outlast.stores.sqlite.unit_of_work import UnitOfWork

FIND_RECEIPT = query("find_receipt")
INSERT_RECEIPT = query("insert_receipt")
INSERT_ITEM = query("insert_item")
FIND_UNSEEN_ITEM = query("find_unseen_item")
LOAD_INBOX = query("load_inbox")


class SqliteInbox(SessionStore):
    """Items that are sent to runs."""

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        receipts = await self._session.write(
            lambda db: send_all(db, sends, finishes, keeps, self.clock.now()),
            rows=3 * len(sends) + len(finishes) + len(keeps),
            timeout=timeout,
        )
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        found = await self._session.read_page(
            lambda db, limit: db.execute(LOAD_INBOX, (run_id, after, limit)).fetchall(),
            limit=limit,
            timeout=timeout,
        )
        return [_to_item(row) for row in found]


def send_all(
    connection: Connection,
    sends: Sequence[Send],
    finishes: Sequence[Claim],
    keeps: Sequence[Claim],
    now: datetime,
) -> list[Receipt | Refusal]:
    """Deliver items, finish the tasks whose results they are, keep other claims for good."""
    unit = UnitOfWork(connection, now)
    for claim in (*finishes, *keeps):
        held = (
            find_alive(connection, claim, now) if claim in keeps else find_held(connection, claim)
        )
        if held is None:
            raise Fenced(claim.subject, token=claim.token)
    unit.load([send.run_id for send in sends])
    receipts = [deliver(unit, send) for send in sends]
    finish_tasks(connection, finishes)
    refused = refusing(sends, receipts)
    keep_tasks(connection, [claim for claim in keeps if claim.run_id not in refused])
    unit.write()
    return receipts


def deliver(unit: UnitOfWork, send: Send) -> Receipt | Refusal:
    """Put one item into an inbox and make its run runnable now."""
    row = unit.find(send.run_id)
    if row is None:
        return NotFound("run", send.run_id)
    if send.uid is not None and send.uid != row.uid:
        return Fenced(f"run {send.run_id!r}", token=None, current=row.token)
    item, connection = send.item, unit.connection
    if row.inbox:
        known = connection.execute(FIND_RECEIPT, (row.key, item.id)).fetchall()
        if known:
            return Receipt(known[0][0], again=True)
    if row.is_terminal:
        return RunClosed(send.run_id, STATUS[row.status])
    number = row.inbox + 1
    connection.execute(INSERT_RECEIPT, (row.key, item.id, number))
    connection.execute(
        INSERT_ITEM,
        (
            row.key, number, item.id, item.kind, item.name, item.sender, unit.now,
            payload(item.data),
        ),
    )  # fmt: skip
    row.inbox = number
    due = unit.now if row.runnable_at is None else min(row.runnable_at, unit.now)
    if due != row.runnable_at:
        row.runnable_at = due
        row.is_moved = True
    row.is_changed = True
    return Receipt(number)


def has_unseen(connection: Connection, row: RunRow, seen: int) -> bool:
    """Whether an item waits that the owner of the run has not seen."""
    if row.inbox <= seen:
        return False
    return bool(connection.execute(FIND_UNSEEN_ITEM, (row.key, seen)).fetchall())


def _to_item(row: tuple[Any, ...]) -> Item:
    number, id, kind, name, sender, sent_at, data = row
    return Item(
        number=number,
        id=id,
        kind=kind,
        name=name,
        sender=sender,
        sent_at=from_micros(sent_at),
        data=raw(data),
    )
