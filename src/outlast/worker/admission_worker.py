"""AdmissionWorker: admits runs that wait in queues, as the queues' policies allow.

It takes tickets (`engine.runner.admission`) and sends an admission to their runs. If its process crashes in between, the
ticket's lease expires and another admission worker takes it: the admission is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from outlast.engine.replay.commit_builder import ticket_queue
from outlast.engine.runner.admission import admission
from outlast.engine.runner.poll_loop import PollLoop
from outlast.errors import Busy, Fenced, NotFound, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.run_contents import Delivery, Receipt, Send
from outlast.ports.clock import Backoff, LeapingClock
from outlast.ports.port import Capability
from outlast.ports.store import Store
from outlast.worker.task_worker import TaskPoller

AT_ONCE = 100
SEND_TRIES = 4
"""A ticket whose admission is not sent keeps its run waiting until the ticket's lease expires."""

log = logging.getLogger("outlast.worker")


class AdmissionWorker:
    """Admits the runs of some workflows from some queues, while this process has `room`."""

    def __init__(
        self,
        store: Store,
        queues: Iterable[str],
        workflows: Iterable[str],
        *,
        owner: str,
        lease: float,
        room: Callable[[], int],
        named: bool = True,
    ) -> None:
        self._store = store
        names = list(workflows)
        self._queues = [ticket_queue(queue, name) for queue in queues for name in names]
        self._owner = owner
        self._lease = lease
        # A call that takes longer would outlast the lease that it works under.
        self._timeout_s = lease / 3
        self._room = room
        self._poll_loop = PollLoop(store, "admitting runs", timeout_s=self._timeout_s, log=log)
        self._is_open = False
        # With virtual time, polling a queue that no test uses would disturb the clock.
        self._is_wanted = named or not isinstance(store.clock, LeapingClock)

    async def open(self) -> None:
        """Start to admit."""
        self._is_open = True
        if self._is_wanted:
            await self._begin()

    async def want(self) -> None:
        """A run waits in a queue now: start to admit."""
        self._is_wanted = True
        if self._is_open:
            await self._begin()

    async def _begin(self) -> None:
        if self._poll_loop.is_running:
            return
        if self._queues and Capability.TASKS in self._store.capabilities:
            self._queue = self._store.queue()
            # A ticket is not work that may fail: it is never dead.
            self._queue.max_attempts = 2**62
            await self._queue.open()
            TaskPoller(
                self._poll_loop,
                self._queue,
                self._queues,
                self._admit_next,
                timeout_s=self._timeout_s,
                is_full=self._is_full,
            ).start()

    async def close(self) -> None:
        """Stop. Runs whose tickets are being taken are still admitted: they count as started."""
        self._is_open = False
        if self._poll_loop.is_running:
            try:
                await self._poll_loop.stop()
            finally:
                await self._queue.close()

    def _is_full(self) -> bool:
        return self._room() <= 0

    async def _admit_next(self) -> bool:
        room = min(self._room(), AT_ONCE)
        if room <= 0:
            return False
        return bool(await self._poll_loop.take(lambda: self._admit_some(room)))

    async def _admit_some(self, room: int) -> list[Delivery]:
        taken = await self._queue.take_many(
            self._queues,
            owner=self._owner,
            visibility=self._lease,
            limit=room,
            timeout=self._timeout_s,
        )
        # Each on its own: one that fails does not end the others.
        ends = await asyncio.gather(*map(self._admit, taken), return_exceptions=True)
        for failure in [end for end in ends if end is not None]:
            raise failure  # one is enough for the log: the tickets are delivered again
        return taken

    async def _admit(self, delivery: Delivery) -> None:
        send = admission(delivery.task)
        try:
            receipt = await self._send(send, delivery.claim)
        except (Fenced, NotFound):
            return  # another worker has the ticket now, or the run has ended
        if not isinstance(receipt, Receipt):
            await self._return_ticket(delivery.claim, receipt)

    async def _return_ticket(self, claim: Claim, refusal: Refusal) -> None:
        try:
            if isinstance(refusal, Busy):
                await self._queue.nack(claim, timeout=self._timeout_s)
                return
            log.info("run %s is not there to be admitted: %s", claim.run_id, refusal)
            await self._queue.nack(claim, requeue=False, drop=True, timeout=self._timeout_s)
        except (Fenced, NotFound):
            pass  # another worker has the ticket now, or the run has ended

    async def _send(self, send: Send, ticket: Claim) -> Receipt | Refusal:
        """Send the admission to a run. It is idempotent by its id."""
        backoff, tries = Backoff(0.05, 1.0, factor=4), 0
        while True:
            try:
                [receipt] = await self._store.send([send], keeps=[ticket], timeout=self._timeout_s)
                return receipt
            except TryAgain as error:
                tries += 1
                if tries == SEND_TRIES:
                    raise
                log.warning("run %s is not admitted yet, trying again: %s", send.run_id, error)
                await backoff.wait(self._store.clock)
