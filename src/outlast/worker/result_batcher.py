"""ResultBatcher: sends the outcomes of a worker's steps to their runs in batches.

::

    step a ─┐                                                     ┌─▶ receipt a
    step b ─┼─▶ waiting ══ store.send([…], finishes=[…]) ══▶ ────┼─▶ receipt b
    step c ─┘      ▲          one call: reports are sent          └─▶ receipt c
    step d ────────┘          and tasks removed

One call at a time, and no delay when it is idle. When a call fails, the outcome of its reports is unknown, and each is
sent again alone. That is idempotent: the store knows a report by its id, and a task that is gone, or that another
worker has, is `Fenced`.
"""

from __future__ import annotations

import asyncio
from collections import deque

from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.run_contents import Receipt, Send
from outlast.ports.store import Store

MAX_BATCH = 100
SETTLE_AT_ONCE = 8
"""How many reports are sent alone at the same time to a store that has just failed."""


class ResultBatcher:
    """Collects reports and sends them. One per process and store; a call may take `timeout_s` seconds."""

    def __init__(self, store: Store, *, timeout_s: float | None = None) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._waiting: deque[_Waiting] = deque()
        self._flusher: asyncio.Task[None] | None = None

    async def send(self, send: Send, finishes: Claim) -> Receipt | Refusal:
        """Send one report and finish its task; returns or raises what `Store.send` does."""
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
            for waiting in self._waiting:  # cancelled in between: they will not be sent
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
                timeout=self._timeout_s,
            )
        except Exception as error:  # noqa: BLE001 - the callers get it
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
    """A report, its task, and the caller's future."""

    __slots__ = ("answer", "finishes", "send")

    def __init__(
        self, send: Send, finishes: Claim, answer: asyncio.Future[Receipt | Refusal]
    ) -> None:
        self.send = send
        self.finishes = finishes
        self.answer = answer

    def succeed(self, receipt: Receipt | Refusal) -> None:
        """Answer with a receipt or a refusal."""
        if not self.answer.done():
            self.answer.set_result(receipt)

    def fail(self, error: Exception) -> None:
        """Answer with an error: the report may not have been sent."""
        if not self.answer.done():
            self.answer.set_exception(error)
