"""Inboxes: sending items, and reading them in pages.

Reads that arrive together go to the server as one statement (`ReadBatcher`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from outlast.errors import Busy, Fenced, NotFound, RunClosed
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run_contents import Item, Receipt, Send
from outlast.ports.read_batcher import ReadBatcher
from outlast.stores.postgres.commit_contents import Blobs, finishes_doc, send_doc, text
from outlast.stores.postgres.rows import STATUS, Row, to_item
from outlast.stores.postgres.session import SessionStore


class PostgresInbox(SessionStore):
    """Items that are sent to runs."""

    @cached_property
    def _inboxes(self) -> ReadBatcher[tuple[str, int, int], list[Row]]:
        return ReadBatcher(self._read_inboxes)

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        found = await self._session.write(
            "send", *self._session.time, *pack_sends(sends, finishes, keeps), timeout=timeout
        )
        receipts = _receipts(sends, [*finishes, *keeps], found)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        found = await self._inboxes.find((run_id, after, limit), timeout)
        return [to_item(row) for row in found or ()]

    async def _read_inboxes(
        self, pages: Sequence[tuple[str, int, int]], timeout: float | None
    ) -> dict[tuple[str, int, int], list[Row]]:
        columns = zip(*pages, strict=True)
        found: dict[tuple[str, int, int], list[Row]] = {}
        for position, *row in await self._session.read("load_inboxes", *columns, timeout=timeout):
            found.setdefault(pages[position - 1], []).append(row)
        return found


def pack_sends(
    sends: Sequence[Send], finishes: Sequence[Claim], keeps: Sequence[Claim]
) -> tuple[Any, ...]:
    """The parameters of `send`, after the time."""
    blobs = Blobs()
    items = [{"i": i, **send_doc(send, blobs)} for i, send in enumerate(sends, 1)]
    return text(items), text(finishes_doc(finishes, keeps)), blobs


def _receipts(
    sends: Sequence[Send], finishes: Sequence[Claim], rows: Sequence[Row]
) -> list[Receipt | Refusal]:
    """The result of each item. Raises if a claim that was to be finished is lost or locked."""
    if rows and rows[0][0] == 0:
        claim = finishes[rows[0][2] - 1]
        if rows[0][1] == "busy":
            raise Busy(f"{claim.subject} is locked by another transaction")
        raise Fenced(claim.subject, token=claim.token)
    return [_receipt(send, row) for send, row in zip(sends, rows, strict=True)]


def _receipt(send: Send, row: Row) -> Receipt | Refusal:
    _, verdict, number, token, status = row
    match verdict:
        case "done" | "again":
            return Receipt(number, again=verdict == "again")
        case "not found":
            return NotFound("run", send.run_id)
        case "fenced":
            return Fenced(f"run {send.run_id!r}", token=None, current=token)
        case "closed":
            return RunClosed(send.run_id, STATUS[status])
    return Busy(f"run {send.run_id!r} is locked by another transaction")
