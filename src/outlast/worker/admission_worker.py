"""AdmissionWorker: lets runs that wait in queues begin, as the queues' rules allow.

It takes tickets (outlast.engine.runner.admission) and tells their runs that their turn has come. If its
process dies in between, the ticket's lease ends and another doorman does it: a run is told once, and
its place counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from outlast.engine.runner.admission import admission, ticket_queue
from outlast.engine.runner.poll_loop import PollLoop
from outlast.errors import Busy, Fenced, NotFound, TryAgain
from outlast.model.claim import Claim
from outlast.model.commit import Refusal
from outlast.model.inbox import Receipt, Send
from outlast.model.task import Delivery
from outlast.ports.capabilities import Capability
from outlast.ports.clock import LeapingClock
from outlast.ports.store import Store
from outlast.worker.task_poller import look_for_ever

AT_ONCE = 100
PAUSES = (0.05, 0.2, 1.0)
"""Before each further try. A ticket that is not told keeps its run waiting until its lease ends."""

log = logging.getLogger("outlast.worker")


class AdmissionWorker:
    """Admits the runs of some workflows from some queues, as long as `room` says that there is any
    in this process."""

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
        # A call that takes longer would cost the lease that it works under.
        self._patience = lease / 3
        self._room = room
        self._daemon = PollLoop(self._patience)
        self._is_open = False
        # Where time is virtual, who looks for what nobody has asked for only disturbs.
        self._is_wanted = named or not isinstance(store.clock, LeapingClock)

    async def open(self) -> None:
        """Begin to admit."""
        self._is_open = True
        if self._is_wanted:
            await self._begin()

    async def want(self) -> None:
        """Something waits in a queue now."""
        self._is_wanted = True
        if self._is_open:
            await self._begin()

    async def _begin(self) -> None:
        if self._daemon.is_running:
            return
        if self._queues and Capability.TASKS in self._store.capabilities:
            self._queue = self._store.queue()
            # A ticket is no work that may fail: it is never given up.
            self._queue.max_attempts = 2**62
            await self._queue.open()
            self._daemon.start(
                look_for_ever(
                    self._store,
                    self._queue,
                    self._queues,
                    self._look,
                    patience=self._patience,
                    is_full=self._is_full,
                )
            )

    async def close(self) -> None:
        """Stop. The runs whose tickets are on their way are told: those count as begun."""
        self._is_open = False
        if self._daemon.is_running:
            try:
                await self._daemon.stop()
            finally:
                await self._queue.close()

    def _is_full(self) -> bool:
        return self._room() <= 0

    async def _look(self) -> bool:
        room = min(self._room(), AT_ONCE)
        if room <= 0:
            return False
        return bool(await self._daemon.take(lambda: self._admit_some(room)))

    async def _admit_some(self, room: int) -> list[Delivery]:
        taken = await self._queue.take_many(
            self._queues,
            owner=self._owner,
            visibility=self._lease,
            limit=room,
            timeout=self._patience,
        )
        # Each on its own: one that fails neither ends the others nor is left behind by them.
        ends = await asyncio.gather(*map(self._admit, taken), return_exceptions=True)
        for failure in [end for end in ends if end is not None]:
            raise failure  # one will do for the log: their tickets come again when their leases end
        return taken

    async def _admit(self, delivery: Delivery) -> None:
        send = admission(delivery.task)
        try:
            receipt = await self._tell(send, delivery.claim)
        except (Fenced, NotFound):
            return  # another doorman has it now, or the run has ended
        if not isinstance(receipt, Receipt):
            await self._send_away(delivery.claim, receipt)

    async def _send_away(self, claim: Claim, refusal: Refusal) -> None:
        try:
            if isinstance(refusal, Busy):
                await self._queue.nack(claim, timeout=self._patience)
                return
            log.info("run %s is not there to be admitted: %s", claim.run_id, refusal)
            await self._queue.nack(claim, requeue=False, drop=True, timeout=self._patience)
        except (Fenced, NotFound):
            pass  # another doorman has it now, or the run has ended

    async def _tell(self, send: Send, ticket: Claim) -> Receipt | Refusal:
        """Tell a run that its turn has come. Told again, it is the same word."""
        for pause in PAUSES:
            try:
                [receipt] = await self._store.send([send], keeps=[ticket], timeout=self._patience)
                return receipt
            except TryAgain as error:
                log.warning("run %s is not admitted yet, trying again: %s", send.run_id, error)
                await self._store.clock.sleep(pause)
        [receipt] = await self._store.send([send], keeps=[ticket], timeout=self._patience)
        return receipt
