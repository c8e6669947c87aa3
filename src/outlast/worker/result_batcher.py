"""ResultBatcher: what a worker's steps have come to, told to their runs together.

::

    step a ─┐                                                     ┌─▶ receipt a
    step b ─┼─▶ waiting ══ store.send([…], finishes=[…]) ══▶ ────┼─▶ receipt b
    step c ─┘      ▲          one call: reports are there         └─▶ receipt c
    step d ────────┘          and tasks gone

One call at a time, and nobody waits when it is idle. When a call fails nobody knows for which of its
reports, and each is sent again alone. That is safe: a report that has arrived is known by its id,
and a task that is gone, or another's, is `Fenced`.
"""

from __future__ import annotations

import asyncio
from collections import deque

from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.inbox import Receipt, Send
from outlast.ports.store import Store

MAX_BATCH = 100
SETTLE_AT_ONCE = 8
"""A store that has just failed is not asked about all of them at the same time."""


class ResultBatcher:
    """Gathers reports and sends them. One per process and store; a call may take
    `patience` seconds."""

    def __init__(self, store: Store, *, patience: float | None = None) -> None:
        self._store = store
        self._patience = patience
        self._waiting: deque[_Waiting] = deque()
        self._flusher: asyncio.Task[None] | None = None

    async def send(self, send: Send, finishes: Claim) -> Receipt | Refusal:
        """What `Store.send` answers to one report, whose task is `finishes`; raise what it raises."""
        waiting = _Waiting(send, finishes, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_all())
        return await waiting.answer

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                size = min(len(self._waiting), MAX_BATCH)
                await self._flush([self._waiting.popleft() for _ in range(size)])
        finally:
            self._flusher = None
            for waiting in self._waiting:  # stopped in between: nobody will send them
                waiting.answer.cancel()
            self._waiting.clear()

    async def _flush(self, batch: list[_Waiting]) -> None:
        batch = [one for one in batch if not one.answer.done()]
        if not batch:
            return
        try:
            receipts = await self._store.send(
                [one.send for one in batch],
                finishes=[one.finishes for one in batch],
                timeout=self._patience,
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, its callers must hear of it
            if len(batch) == 1:
                batch[0].fail(error)
                return
        except BaseException:
            for one in batch:
                one.answer.cancel()
            raise
        else:
            for one, receipt in zip(batch, receipts, strict=True):
                one.succeed(receipt)
            return
        for start in range(0, len(batch), SETTLE_AT_ONCE):
            alone = batch[start : start + SETTLE_AT_ONCE]
            await asyncio.gather(*(self._flush([one]) for one in alone))


class _Waiting:
    """A report, its task, and whoever waits for the answer."""

    __slots__ = ("answer", "finishes", "send")

    def __init__(
        self, send: Send, finishes: Claim, answer: asyncio.Future[Receipt | Refusal]
    ) -> None:
        self.send = send
        self.finishes = finishes
        self.answer = answer

    def succeed(self, receipt: Receipt | Refusal) -> None:
        """Tell what became of it."""
        if not self.answer.done():
            self.answer.set_result(receipt)

    def fail(self, error: Exception) -> None:
        """Tell why nothing is known, or nothing was sent."""
        if not self.answer.done():
            self.answer.set_exception(error)
