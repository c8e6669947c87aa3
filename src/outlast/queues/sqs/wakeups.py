"""A wake-up channel over SQS: a message says that work may be available, the store has the work.

::

    send a wake-up ──▶ SendMessage ──▶ SQS ──▶ long poll of one of the processes
                                                  │ it wakes its waiters, which read the store
                                                  ▼
                   no work is left            DeleteMessage
                   work is left               visible again, at once or soon: another process gets it
                   never settled (a crash)    visible again after its visibility timeout

A message has its sender and nothing else. Other messages are not wake-ups: they are left to their owner or to the
redrive policy of the queue, and logged once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Callable

import msgspec
from msgspec import Struct

from outlast.errors import Closed, InvalidValue, OutlastError, TryAgain
from outlast.ports.notifier import WakeupChannel
from outlast.queues.sqs.client import BATCH, Calls, Entry, SqsAddress, SqsClient
from outlast.queues.sqs.message import Message
from outlast.queues.sqs.queue_urls import Location, QueueUrls

LONG_POLL = 20
HIDDEN_S = 30
"""Seconds for which a message is hidden while the store is read."""

IMMEDIATE_TURNS, MAX_TURNS, MAX_DELAY_S = 3, 10, 30
"""A message that is passed on becomes visible at once the first times, then after 1, 2, 4 … seconds, so that work which
no process can take does not keep all busy; finally it is dropped. The wake-up relay sends it again if work is still
waiting."""

REST = 0.2
"""Seconds for which a process does not listen after it has passed a message on: another one should get it."""

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
LONGEST_CALL = 10.0
OPEN_TIMEOUT_S, CLOSE_TIMEOUT_S = 5.0, 2.0
"""Seconds that SQS has to respond when a process starts, and when it ends."""

MINUTE = {"MessageRetentionPeriod": "60"}
"""An older wake-up is useless: all processes have polled since."""

_log = logging.getLogger("outlast.sqs")


class WakeupMessage(Struct, frozen=True):
    """The content of a message: its form and its sender."""

    outlast: int
    wakeup: str


class SqsWakeups(WakeupChannel):
    """Sends wake-ups to one of the other processes on the same SQS queue.

    Pass it to an app: ``App(store, wakeup_channel=SqsWakeups("wakeups"))``. `client`, `region` and `endpoint` are as
    for `SqsQueue`. The queue is named, or given by its `url`; it must be a standard queue, for wake-ups only. `create`
    creates it if it is missing.
    """

    def __init__(
        self,
        queue: str = "outlast-wakeups",
        client: SqsClient | None = None,
        *,
        url: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        create: bool = False,
    ) -> None:
        self._text = msgspec.json.encode(WakeupMessage(1, os.urandom(8).hex())).decode()
        self._queue = queue
        self._calls = Calls(client, region, endpoint)
        self._places = QueueUrls(
            self._calls,
            prefix="",
            urls=None if url is None else {queue: url},
            fifo=False,
            create=create,
            dead_suffix=None,
            attributes=MINUTE,
        )
        self._held: list[Message] = []
        self._settled = asyncio.Event()
        self._rest = 0.0
        self._has_told = False
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, location: str) -> SqsWakeups:
        """The wake-up channel that ``sqs://wakeups?region=…`` or ``sqs+https://…/wakeups`` names."""
        given = Location.of(location)
        return cls(
            given.queue,
            url=given.url,
            region=given.region,
            endpoint=given.endpoint,
            create=given.create,
        )

    async def open(self, wake: Callable[[], None]) -> None:
        if self._listening is not None:
            return
        self._calls.open()
        try:
            place = await self._places.of(self._queue, timeout=OPEN_TIMEOUT_S)
            if place.is_fifo:
                raise InvalidValue(
                    "a wake-up channel needs a standard queue: FIFO would hold wake-ups back"
                )
        except TryAgain as error:
            _log.warning("nothing is heard yet, work is found by looking: %s", error)
        except BaseException:
            self._calls.close()
            raise
        self._listening = asyncio.create_task(self._listen(wake), name="outlast listens")

    async def close(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            self.is_listening = False
            held, self._held = self._held, []
            await self._show(held, 0, timeout=CLOSE_TIMEOUT_S)
            self._calls.close()

    async def describe(self) -> dict[str, str]:
        """The attributes of the queue, as SQS returns them, for checks of its settings."""
        is_open = self._listening is not None
        if not is_open:
            self._calls.open()
        try:
            place = await self._places.of(self._queue, timeout=LONGEST_CALL)
            answer = await self._calls.call(
                "get_queue_attributes",
                place.name,
                timeout=LONGEST_CALL,
                QueueUrl=place.url,
                AttributeNames=["All"],
            )
        finally:
            if not is_open:
                self._calls.close()
        return {"QueueUrl": place.url, **answer.get("Attributes", {})}

    async def send(self) -> None:
        place = await self._places.of(self._queue, timeout=LONGEST_CALL)
        await self._calls.call(
            "send_message",
            place.name,
            timeout=LONGEST_CALL,
            QueueUrl=place.url,
            MessageBody=self._text,
        )

    async def settle(self, received: int, *, left: bool) -> int:
        count = len(self._held) - (self.received - received)
        messages, self._held = self._held[: max(count, 0)], self._held[max(count, 0) :]
        if not messages:
            return 0
        on = [one for one in messages if left and one.received < MAX_TURNS]
        over = [{"ReceiptHandle": one.handle} for one in messages if one not in on]
        await self._batch("delete_message_batch", over)
        for message in on:
            later = message.received - IMMEDIATE_TURNS
            await self._show([message], 0 if later <= 0 else min(2 ** (later - 1), MAX_DELAY_S))
        self._rest = REST if on else 0.0
        self._settled.set()
        return len(on)

    # -- listening ----------------------------------------------------------------------------

    async def _listen(self, wake: Callable[[], None]) -> None:
        retry = FIRST_RETRY
        while True:
            try:
                # Found when it was opened, unless SQS was away.
                place = await self._places.of(self._queue, timeout=LONGEST_CALL)
                await self._hear(place, wake)
                retry = FIRST_RETRY
            except (OutlastError, OSError) as error:
                if isinstance(error, Closed):
                    return
                level = logging.WARNING if self.is_listening else logging.DEBUG
                _log.log(level, "nothing is heard, work is found by looking: %s", error)
                self.is_listening = False
                await asyncio.sleep(retry * random.uniform(0.5, 1))
                retry = min(2 * retry, LONGEST_RETRY)

    async def _hear(self, place: SqsAddress, wake: Callable[[], None]) -> None:
        """One long poll, and the handling of its messages."""
        found = await self._calls.receive(place, seconds=HIDDEN_S, wait=LONG_POLL, count=BATCH)
        self.is_listening = True
        wakeups = [one for one in found if _is_wakeup(one.body)]
        if len(wakeups) < len(found):
            self._tell(place)
        if not wakeups:
            return
        self._settled.clear()
        self._held += wakeups
        self.received += len(wakeups)
        wake()
        try:
            async with asyncio.timeout(HIDDEN_S):
                await self._settled.wait()
        except TimeoutError:
            self._held = []  # they are shown to others by now
        await asyncio.sleep(self._rest)

    def _tell(self, place: SqsAddress) -> None:
        if not self._has_told:
            self._has_told = True
            _log.warning(
                "SQS queue %r has messages that are not of outlast: they are left alone. Give the "
                "wake-up channel a queue of its own, or look at who sends them",
                place.name,
            )

    # -- what was heard -----------------------------------------------------------------------

    async def _show(
        self, messages: list[Message], seconds: int, *, timeout: float = LONGEST_CALL
    ) -> None:
        entries: list[Entry] = [
            {"ReceiptHandle": one.handle, "VisibilityTimeout": seconds} for one in messages
        ]
        await self._batch("change_message_visibility_batch", entries, timeout=timeout)

    async def _batch(
        self, operation: str, entries: list[Entry], *, timeout: float = LONGEST_CALL
    ) -> None:
        if not entries:
            return
        try:
            place = await self._places.of(self._queue, timeout=timeout)
            await self._calls.batch(operation, place, entries, timeout=timeout)
        except OutlastError as error:
            # They come again when their visibility ends.
            _log.debug("what was heard is not settled: %s", error)


def _is_wakeup(body: str) -> bool:
    if len(body) > 1000:
        return False
    try:
        return msgspec.json.decode(body, type=WakeupMessage).outlast >= 1
    except (msgspec.MsgspecError, ValueError):
        return False
