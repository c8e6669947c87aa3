"""WakeupRelay: sends a wake-up the wake-up channel for work that nobody has taken.

The store is the outbox. What a commit makes due stands there, durable, in the same rows by which it
is claimed, so there is no list of messages to be sent that could disagree with it. A relay asks one
question, "is there something due that nobody has?", and sends a wake-up if there is:

- after a write here, once those who look in this process have had their chance;
- after a message was heard, to know whether it is done with or has to go on to another process;
- every few seconds all the same: so a message that was lost, or whose sender died before it was
  sent, is made anew from the store by whichever relay asks next.

Every process has one, and they need not agree: two that send a wake-up for the same work make one message too
many. What stays although it was woken for (nobody has its code, or room) gets a wake-up more and more
rarely.
"""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime

from outlast.engine.runner.leases import raise_if_cancelled
from outlast.errors import Closed, OutlastError
from outlast.ports.capabilities import Capability
from outlast.ports.notifier import WakeupChannel
from outlast.ports.store import Store

SWEEP_SECONDS = 5.0
OTHERS_FIRST = 0.05
"""Seconds for which those who look here go first: what they take need not be woken for."""

FIRST_AGAIN, LONGEST_AGAIN = 1.0, 60.0

log = logging.getLogger("outlast.worker")

BETWEEN_RINGS = 0.2
CALL_SECONDS = 10.0
LAST_SECONDS = 2.0
"""How long a process that stops tries to send a wake-up: others find what it hands back by looking, too."""

Left = tuple[datetime | None, str | None]
"""What is due and nobody has: since when a run is, and the id of a task."""

NOTHING: Left = (None, None)


class WakeupRelay:
    """Sends a wake-up for one store, and settles what its wake-up channel hears. A question to the store may take
    `patience` seconds."""

    def __init__(
        self, store: Store, wakeup_channel: WakeupChannel, *, patience: float = CALL_SECONDS
    ) -> None:
        self._store = store
        self._patience = patience
        self._channel = wakeup_channel
        self._insistence = RepeatedWakeups()
        self._wake_calls = 0
        self._relaying: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to listen and to send a wake-up."""
        if self._relaying is None:
            notifier = self._store.notifier
            self._wake_calls = notifier.wake_calls
            try:
                await self._channel.open(notifier.wake_local)
            except BaseException:
                await self._channel.close()
                raise
            notifier.wakeup_channel = self._channel
            self._relaying = asyncio.create_task(self._relay_for_ever(), name="outlast relays")

    async def close(self) -> None:
        """Stop. What was handed back last gets a wake-up; closing twice is fine."""
        relaying, self._relaying = self._relaying, None
        if relaying is not None:
            relaying.cancel()
            await asyncio.gather(relaying, return_exceptions=True)
            self._store.notifier.wakeup_channel = None
            try:
                async with asyncio.timeout(LAST_SECONDS):
                    await self._relay()
            except (OutlastError, TimeoutError) as error:
                log.debug("the last wake-up was not passed on: %r", error)
            finally:
                await self._channel.close()

    async def _relay_for_ever(self) -> None:
        notifier, clock = self._store.notifier, self._store.clock
        pause = OTHERS_FIRST
        while True:
            # Not by the clock of the store: this is about the other tasks of this process.
            await asyncio.sleep(pause)
            wakeups = notifier.wakeups
            try:
                pause = BETWEEN_RINGS if await self._relay() else OTHERS_FIRST
            except Closed:
                raise
            except (OutlastError, asyncio.CancelledError) as error:
                raise_if_cancelled()
                # Nobody is told, and nothing is lost: they look again after a while.
                log.debug("a wake-up was not passed on: %s", error)
            except Exception:
                log.exception("passing wake-ups on failed in an unforeseen way, trying again")
            sweep = random.uniform(0.8, 1.2) * SWEEP_SECONDS
            await notifier.wait(clock, sweep, since=wakeups)

    async def _relay(self) -> bool:
        """Settle what was heard, send a wake-up for what is left; whether it sent it."""
        received, wake_calls = self._channel.received, self._store.notifier.wake_calls
        left = await self._left()
        is_new = wake_calls != self._wake_calls and left != NOTHING
        self._wake_calls = wake_calls
        wants = self._insistence.wants(left, self._store.clock.monotonic())
        # For what was written here a fresh message goes out, which nobody has turned down yet.
        gone_on = await self._channel.settle(received, left=left != NOTHING and not is_new)
        if is_new or (wants and not gone_on):
            await self._channel.send()
            return True
        return False

    async def _left(self) -> Left:
        store, patience = self._store, self._patience
        now = await store.now(timeout=patience)
        due = await store.next_runnable_at(timeout=patience)
        tasks = None
        if Capability.TASKS in store.capabilities:
            tasks = await store.find_available_tasks(timeout=patience)
        return (
            due if due is not None and due <= now else None,
            tasks[0].id if tasks else None,
        )


class RepeatedWakeups:
    """Whether to send a wake-up for what is left though nothing was written here: at once if it was not there
    before, else more and more rarely."""

    def __init__(self) -> None:
        self._left = NOTHING
        self._again_at = 0.0
        self._pause = FIRST_AGAIN

    def wants(self, left: Left, now: float) -> bool:
        """Whether to send a wake-up now, at `now` on a monotonic clock."""
        before, self._left = self._left, left
        if left == NOTHING:
            return False
        if left != before:
            self._pause = FIRST_AGAIN
        elif now < self._again_at:
            return False
        self._again_at = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_AGAIN)
        return True
