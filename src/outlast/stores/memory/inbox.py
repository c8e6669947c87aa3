"""Inboxes: sending items, and reading them in pages."""

from __future__ import annotations

from collections.abc import Sequence

from outlast.errors import Fenced
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.commit_rules import WakeupKind
from outlast.model.run_contents import (
    Item,
    Receipt,
    Send,
    refusing,
)
from outlast.stores.memory.commit import deliver
from outlast.stores.memory.tables import TableStore


class MemoryInbox(TableStore):
    """Items that are sent to runs."""

    async def send(
        self,
        sends: Sequence[Send],
        *,
        finishes: Sequence[Claim] = (),
        keeps: Sequence[Claim] = (),
        timeout: float | None = None,
    ) -> list[Receipt | Refusal]:
        with self._locked() as tables:
            now = self.clock.now()
            for claim in (*finishes, *keeps):
                held = tables.alive(claim, now) if claim in keeps else tables.claimed(claim)
                if held is None:
                    raise Fenced(claim.subject, token=claim.token)
            receipts = [deliver(tables, send, self.clock.now()) for send in sends]
            for claim in finishes:
                tables.finish(claim)
            refused = refusing(sends, receipts)
            for claim in keeps:
                if claim.run_id not in refused:
                    tables.keep(claim)
        self.notifier.wake(WakeupKind.RUNS, runs={send.run_id for send in sends})
        return receipts

    async def inbox(
        self, run_id: str, *, after: int = 0, limit: int = 1000, timeout: float | None = None
    ) -> list[Item]:
        with self._life(run_id) as life:
            inbox = {} if life is None else life.inbox
            return [inbox[number] for number in sorted(inbox) if number > after][:limit]
