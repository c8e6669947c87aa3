"""Sending, hiding and deleting messages. SQS delays a message for at most 15 minutes, and a FIFO queue cannot delay
single messages: a later due time is in the message, and the process that receives it early handles it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import timedelta
from math import ceil

from msgspec.structs import replace

from outlast.errors import NotFound, UnknownOutcome
from outlast.model.times import to_micros
from outlast.ports.clock import Clock
from outlast.queues.sqs.client import BATCH, Calls, Entry, Rejected, SqsAddress
from outlast.queues.sqs.dead_letters import DeadLetter, collect, dead_entry, in_fifo, show_again
from outlast.queues.sqs.message import (
    MAX_MESSAGE,
    NOTE,
    Message,
    TaskMessage,
    body_of,
    group_of,
    once,
)
from outlast.queues.sqs.queue_urls import QueueUrls

LONGEST_DELAY = 900
PASSED_ON = "passed on "
MAX_RETURNS = 200
"""How often a message is returned for other processes, over two days, before it is buried."""

LONG_REST = 6
_log = logging.getLogger("outlast.sqs")


class TooLong(Exception):
    """SQS does not hide the message any longer."""


class Sender:
    """Sends, hides, moves and deletes messages."""

    def __init__(self, calls: Calls, places: QueueUrls, clock: Clock) -> None:
        self._calls = calls
        self._places = places
        self._clock = clock
        self._has_told: set[str] = set()

    # -- sending ------------------------------------------------------------------------------

    async def send(
        self, queue: str, tasks: list[tuple[TaskMessage, float]], *, timeout: float | None
    ) -> None:
        """Send messages, each with its delay in seconds."""
        place = await self._places.of(queue, timeout=timeout)
        entries = [
            self.entry(place, letter, wait, known_as=once(letter.task.run_id, letter.task.id))
            for letter, wait in tasks
        ]
        await self.post(place, entries, timeout=timeout)

    async def post(self, place: SqsAddress, entries: list[Entry], *, timeout: float | None) -> None:
        """Send messages in as few batches as ten messages and 256 KB each allow."""
        failed: list[Entry] = []
        for some in _batches(entries):
            failed += await self._calls.batch("send_message_batch", place, some, timeout=timeout)
        if failed:
            raise UnknownOutcome(
                f"SQS queue {place.name!r} took {len(entries) - len(failed)} of {len(entries)} "
                "messages: send them all again, delivery is at least once"
            )

    def entry(self, place: SqsAddress, letter: TaskMessage, wait: float, *, known_as: str) -> Entry:
        """The entry of a message with a delay of `wait` seconds. A FIFO queue drops what is `known_as` an id that it got in
        the last five minutes."""
        delay = 0 if place.is_fifo else min(ceil(max(wait, 0)), LONGEST_DELAY)
        if wait > delay:
            due = self._clock.now() + timedelta(seconds=wait)
            letter = replace(letter, due=to_micros(due), held_back=wait)
        entry: Entry = {"MessageBody": body_of(letter)}
        if place.is_fifo:
            ids = {"MessageGroupId": group_of(letter.task), "MessageDeduplicationId": known_as}
            return {**entry, **ids}
        return {**entry, "DelaySeconds": delay}

    async def replace_by(
        self,
        place: SqsAddress,
        message: Message,
        handle: str,
        letter: TaskMessage,
        wait: float,
        *,
        timeout: float | None,
    ) -> None:
        """Send a copy, then delete the message: a crash in between duplicates it and loses nothing."""
        again = self.entry(place, letter, wait, known_as=once(message.id, handle))
        await self.post(place, [again], timeout=timeout)
        await self.delete(place, handle, timeout=timeout)

    # -- single calls -------------------------------------------------------------------------

    async def hide(
        self, place: SqsAddress, handle: str, seconds: float, *, timeout: float | None
    ) -> None:
        """Hide a message for `seconds` from now; `TooLong` if SQS does not hide it any longer."""
        try:
            await self._calls.call(
                "change_message_visibility",
                place.name,
                timeout=timeout,
                QueueUrl=place.url,
                ReceiptHandle=handle,
                VisibilityTimeout=ceil(seconds),
            )
        except Rejected as why:
            if why.hides_too_long:
                raise TooLong from why
            raise

    async def delete(self, place: SqsAddress, handle: str, *, timeout: float | None) -> None:
        """Delete a message."""
        await self._calls.call(
            "delete_message",
            place.name,
            timeout=timeout,
            QueueUrl=place.url,
            ReceiptHandle=handle,
        )

    async def pass_on(self, place: SqsAddress, message: Message, *, timeout: float | None) -> bool:
        """Return a message for other processes, with growing delays, up to a limit. A copy replaces it, so that no attempt
        is counted; in a FIFO queue, where a copy would lose its position, it is hidden."""
        times = message.received if place.is_fifo else _passed_on(message) + 1
        if times > MAX_RETURNS:
            return False
        if place.is_fifo:
            await self.hide(place, message.handle, _rest(times), timeout=timeout)
            return True
        note = {"DataType": "String", "StringValue": f"{PASSED_ON}{times}"}
        entry: Entry = {
            "MessageBody": message.body,
            "DelaySeconds": _rest(times),
            "MessageAttributes": {NOTE: note},
        }
        await self.post(place, [entry], timeout=timeout)
        await self.delete(place, message.handle, timeout=timeout)
        return True

    # -- dead letters -------------------------------------------------------------------------

    async def put_away(
        self, queue: str, message: Message, *, attempt: int, reason: str, timeout: float | None
    ) -> None:
        """Bury a message that no process here can handle. Without a dead-letter queue it is hidden, longer each time: it
        must not block other messages, and may not be deleted."""
        try:
            await self.bury(queue, message, attempt=attempt, reason=reason, timeout=timeout)
        except NotFound as missing:
            if queue not in self._has_told:
                self._has_told.add(queue)
                _log.warning(
                    "a message of queue %r should be among the dead letters (%s), and %s: it is "
                    "hidden for a while. Create that queue, or use create=True",
                    queue,
                    reason,
                    missing,
                )
            place = await self._places.of(queue, timeout=timeout)
            with suppress(TooLong):
                seconds = _rest(message.received + LONG_REST)
                await self.hide(place, message.handle, seconds, timeout=timeout)

    async def bury(
        self, queue: str, message: Message, *, attempt: int, reason: str, timeout: float | None
    ) -> None:
        """Move a message to the dead letters. If those are left to SQS it stays hidden: made visible it would return at
        once."""
        if self._places.dead_suffix is None:
            return
        source = await self._places.of(queue, timeout=timeout)
        place = await self._places.dead(queue, timeout=timeout)
        entry = dead_entry(message, reason=reason, attempt=attempt, now=self._clock.now())
        entry = in_fifo(entry, message) if place.is_fifo else entry
        await self.post(place, [entry], timeout=timeout)
        await self.delete(source, message.handle, timeout=timeout)

    async def remove_dead(
        self,
        place: SqsAddress,
        queue: str,
        task_ids: Collection[str] | None,
        *,
        first: Callable[[list[DeadLetter]], Awaitable[None]] | None,
        timeout: float | None,
    ) -> int:
        """Delete dead letters, all or those of some tasks, after `first` has handled them."""
        if task_ids is not None and not task_ids:
            return 0
        found = await collect(self._calls, place, queue=queue, limit=None, timeout=timeout)
        chosen = [one for one in found if task_ids is None or one.dead.task.id in task_ids]
        try:
            if chosen and first is not None:
                await first(chosen)
            entries = [{"ReceiptHandle": one.message.handle} for one in chosen]
            await self._calls.batch("delete_message_batch", place, entries, timeout=timeout)
        finally:
            kept = [one for one in found if one not in chosen]
            await show_again(self._calls, place, kept, timeout=timeout)
        return len(chosen)


def _passed_on(message: Message) -> int:
    """How often a message was returned for other processes."""
    times = (message.note or "").removeprefix(PASSED_ON)
    return int(times) if times.isdecimal() else 0


def _rest(times: int) -> int:
    """A delay in seconds: 1, 2, 4 …"""
    return min(1 << min(times - 1, 20), LONGEST_DELAY)


def _batches(entries: list[Entry]) -> list[list[Entry]]:
    batches: list[list[Entry]] = []
    size = 0
    for entry in entries:
        more = len(entry["MessageBody"]) + len(str(entry.get("MessageAttributes", "")))
        if not batches or len(batches[-1]) == BATCH or size + more > MAX_MESSAGE:
            batches.append([])
            size = 0
        batches[-1].append(entry)
        size += more
    return batches
