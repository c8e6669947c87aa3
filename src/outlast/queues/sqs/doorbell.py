"""A doorbell over SQS: it says "look", and the store says what there is.

::

    commit ── ring ──▶ waiters here, at once
                └────▶ flag ── at most one tiny message in a while, by a thread ──▶ SQS
    SQS ── long poll, by a thread, while somebody here waits ──▶ deleted, waiters here are woken

A message names nothing but its sender. It reaches one of the processes that wait, which claims from
the store whatever is runnable by then; so a message that is lost, doubled, late, stale or overtaken
does no harm, and what nobody rang for is found by looking again after a while. Nothing is kept
between processes: each passes on its own rings, and none has to take over those of another.
"""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import Any, Self

from outlast.errors import InvalidValue, OutlastError
from outlast.ports.clock import Clock
from outlast.ports.notifier import LocalNotifier
from outlast.queues.sqs.calls import BATCH, Calls, Place
from outlast.queues.sqs.client import SqsClient
from outlast.queues.sqs.places import Places

PAUSE = 0.2
"""Seconds between two messages: more rings in between are one."""

LONG_POLL = 20
HEARING = 30
"""Seconds for which a message is hidden while it is heard and deleted."""

OWN_TURNS = 3
"""How often a process may get a message of its own until it deletes it. It hands it on and does not
listen for a moment, so that another one gets it."""

FIRST_RETRY, LONGEST_RETRY = 0.5, 30.0
MINUTE = {"MessageRetentionPeriod": "60"}
"""A ring that is older tells nothing: everybody has looked since."""

_log = logging.getLogger("outlast.sqs")


class SqsDoorbell(LocalNotifier):
    """Rings here and, while it is open, in one of the other processes on the same SQS queue.

    Give it to a store: ``store.notifier = doorbell``. `client`, `region` and `endpoint` are as for
    `SqsQueue`. The queue is named, or given by its `url`; it must be a standard one, for rings alone.
    """

    def __init__(
        self,
        queue: str = "outlast-doorbell",
        client: SqsClient | None = None,
        *,
        url: str | None = None,
        region: str | None = None,
        endpoint: str | None = None,
        create: bool = False,
        pause: float = PAUSE,
    ) -> None:
        super().__init__()
        if not pause >= 0:
            raise InvalidValue(f"pause={pause}: use 0 or more seconds")
        self._name = os.urandom(8).hex()
        self._queue = queue
        self._pause = pause
        self._calls = Calls(client, region, endpoint)
        urls = None if url is None else {queue: url}
        self._places = Places(
            self._calls,
            prefix="",
            urls=urls,
            fifo=False,
            create=create,
            dead_suffix=None,
            attributes=MINUTE,
        )
        self._state = threading.Condition()
        self._waiters = 0
        self._is_owed = False
        self._life: object | None = None

    async def open(self) -> None:
        """From now on it rings elsewhere, too. Opening it twice does nothing."""
        if self._life is not None:
            return
        self._calls.open()
        place = await self._places.of(self._queue)
        if place.is_fifo:
            raise InvalidValue("a doorbell needs a standard queue: FIFO would hold rings back")
        self._life = life = object()
        for work in (self._pass_on, self._listen):
            threading.Thread(
                target=work, args=(place, life), name="outlast-doorbell", daemon=True
            ).start()

    async def close(self) -> None:
        """Stop. It still rings here. Closing it twice does nothing."""
        with self._state:
            self._life = None
            self._state.notify_all()
        self._calls.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def ring(self) -> None:
        super().ring()
        with self._state:
            self._is_owed = True
            self._state.notify_all()

    async def wait(self, clock: Clock, seconds: float, *, since: int) -> bool:
        self._count(1)
        try:
            return await super().wait(clock, seconds, since=since)
        finally:
            self._count(-1)

    def _count(self, change: int) -> None:
        with self._state:
            self._waiters += change
            self._state.notify_all()

    # -- in threads ---------------------------------------------------------------------------

    def _pass_on(self, place: Place, life: object) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._is_owed or self._life is not life)
                if self._life is not life:
                    return
                self._is_owed = False
            try:
                self._calls.do(
                    "send_message", place.name, {"QueueUrl": place.url, "MessageBody": self._name}
                )
            except OutlastError as error:
                # Nobody is told, and nothing is lost: they look again after a while.
                _log.debug("a ring was not passed on: %s", error)
            self._rest(self._pause, life)

    def _listen(self, place: Place, life: object) -> None:
        retry = FIRST_RETRY
        while True:
            with self._state:
                # Who is busy does not listen: the ring is for those who have time.
                self._state.wait_for(lambda: self._waiters or self._life is not life)
                if self._life is not life:
                    return
            try:
                self._hear(place, life)
                retry = FIRST_RETRY
            except OutlastError as error:
                _log.debug("cannot listen: %s", error)
                self._rest(retry, life)
                retry = min(2 * retry, LONGEST_RETRY)

    def _hear(self, place: Place, life: object) -> None:
        answer = self._calls.do(
            "receive_message",
            place.name,
            {
                "QueueUrl": place.url,
                "MaxNumberOfMessages": BATCH,
                "WaitTimeSeconds": LONG_POLL,
                "VisibilityTimeout": HEARING,
                "AttributeNames": ["ApproximateReceiveCount"],
            },
        )
        found = answer.get("Messages", [])
        if not found:
            return
        # What comes after the end, or is our own, is for others.
        gone = self._life is not life
        ours = [one for one in found if gone or self._is_to_hand_on(one)]
        heard = [one for one in found if one not in ours]
        if any(one["Body"] != self._name for one in heard):
            super().ring()
        self._batch("delete_message_batch", place, heard)
        self._batch("change_message_visibility_batch", place, ours, VisibilityTimeout=0)
        if ours:
            self._rest(PAUSE, life)

    def _is_to_hand_on(self, message: dict[str, Any]) -> bool:
        turns = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
        return message["Body"] == self._name and turns < OWN_TURNS

    def _batch(
        self, operation: str, place: Place, messages: list[dict[str, Any]], **fields: Any
    ) -> None:
        if messages:
            entries = [
                {"Id": str(number), "ReceiptHandle": one["ReceiptHandle"], **fields}
                for number, one in enumerate(messages)
            ]
            self._calls.do(operation, place.name, {"QueueUrl": place.url, "Entries": entries})

    def _rest(self, seconds: float, life: object) -> None:
        with self._state:
            self._state.wait_for(lambda: self._life is not life, timeout=seconds)
