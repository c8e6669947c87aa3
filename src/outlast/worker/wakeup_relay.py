"""WakeupRelay: sends wake-ups through the wake-up channel for due work that no process has taken.

The store is the outbox: what a commit makes due is durable there, in the same rows by which it is claimed, so there is
no list of messages that could disagree with it. The relay asks whether there is due work that no process holds, and
sends a wake-up if there is:

- after a write here, once the pollers of this process have had their chance;
- after a message has arrived, to know whether it is done or has to go on to another process;
- every few seconds: a message that was lost, or whose sender crashed, is sent again by whichever relay asks next.

Every process has a relay, and they are independent: two wake-ups for the same work cost one message. For work that
stays due (no process has its code, or room), wake-ups are repeated less and less often.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime

from outlast.engine.runner.poll_loop import NextPoll, PollLoop
from outlast.errors import Closed, OutlastError
from outlast.ports.clock import Backoff
from outlast.ports.notifier import WakeupChannel
from outlast.ports.port import Capability
from outlast.ports.store import Store

SWEEP_S = 5.0
LOCAL_FIRST_S = 0.05
"""How long the pollers of this process go first: what they take needs no wake-up."""
BETWEEN_MESSAGES_S = 0.2
FIRST_REPEAT_S, LONGEST_REPEAT_S = 1.0, 60.0
CALL_TIMEOUT_S = 10.0
LAST_TIMEOUT_S = 2.0
"""How long a process that stops tries to send its last wake-up: other processes also find its work by polling."""

log = logging.getLogger("outlast.worker")

Left = tuple[datetime | None, str | None]
"""Due work that no process holds: since when a run is due, and the id of a task."""

NOTHING: Left = (None, None)


class WakeupRelay:
    """Relays wake-ups for one store. A call of the store may take `timeout_s` seconds."""

    def __init__(
        self, store: Store, wakeup_channel: WakeupChannel, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._channel = wakeup_channel
        self._repeats = RepeatedWakeups()
        self._wake_calls = 0
        self._poll_loop = PollLoop(
            store, "relaying wake-ups", timeout_s=timeout_s, log=log, delay_s=LOCAL_FIRST_S
        )

    async def open(self) -> None:
        """Start to listen and to relay."""
        if not self._poll_loop.is_running:
            notifier = self._store.notifier
            self._wake_calls = notifier.wake_calls
            try:
                await self._channel.open(notifier.wake_local)
            except BaseException:
                await self._channel.close()
                raise
            notifier.wakeup_channel = self._channel
            self._poll_loop.start(self._poll)

    async def close(self) -> None:
        """Stop, after a last wake-up for what this process has released. Closing twice is fine."""
        if self._poll_loop.is_running:
            await self._poll_loop.stop()
            self._store.notifier.wakeup_channel = None
            try:
                async with asyncio.timeout(LAST_TIMEOUT_S):
                    await self._relay()
            except (OutlastError, TimeoutError) as error:
                log.debug("the last wake-up was not relayed: %r", error)
            finally:
                await self._channel.close()

    async def _poll(self) -> NextPoll:
        delay_s = LOCAL_FIRST_S
        try:
            if await self._relay():
                delay_s = BETWEEN_MESSAGES_S
        except Closed:
            raise
        except OutlastError as error:
            # Nothing is lost: every process polls after a while.
            log.debug("a wake-up was not relayed: %s", error)
        sweep_s = random.uniform(0.8, 1.2) * SWEEP_S
        return NextPoll(sweep_s, delay_s=delay_s)

    async def _relay(self) -> bool:
        """Settle the messages that arrived, and send a wake-up for the work that is left; whether it sent one."""
        received, wake_calls = self._channel.received, self._store.notifier.wake_calls
        left = await self._left()
        is_new = wake_calls != self._wake_calls and left != NOTHING
        self._wake_calls = wake_calls
        wants = self._repeats.wants(left, self._store.clock.monotonic())
        # For what was written here a new message is sent: no process has passed it on yet.
        gone_on = await self._channel.settle(received, left=left != NOTHING and not is_new)
        if is_new or (wants and not gone_on):
            await self._channel.send()
            return True
        return False

    async def _left(self) -> Left:
        store, timeout_s = self._store, self._timeout_s
        now = await store.now(timeout=timeout_s)
        due = await store.next_runnable_at(timeout=timeout_s)
        tasks = None
        if Capability.TASKS in store.capabilities:
            tasks = await store.find_available_tasks(timeout=timeout_s)
        return (
            due if due is not None and due <= now else None,
            tasks[0].id if tasks else None,
        )


class RepeatedWakeups:
    """Decides whether to send a wake-up for work that was not written here: at once if it is new, else less and less
    often."""

    def __init__(self) -> None:
        self._left = NOTHING
        self._again_at = 0.0
        self._backoff = Backoff(FIRST_REPEAT_S, LONGEST_REPEAT_S)

    def wants(self, left: Left, now: float) -> bool:
        """Whether to send a wake-up now, at `now` on a monotonic clock."""
        before, self._left = self._left, left
        if left == NOTHING:
            return False
        if left != before:
            self._backoff = Backoff(FIRST_REPEAT_S, LONGEST_REPEAT_S)
        elif now < self._again_at:
            return False
        self._again_at = now + self._backoff.next_s()
        return True
