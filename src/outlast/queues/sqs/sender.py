"""Sending, hiding and removing messages. SQS holds a message back for 15 minutes at most, and a FIFO
queue not at all: what is due later says so, and is dealt with by whoever receives it early."""

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
from outlast.queues.sqs.calls import BATCH, Calls, Entry, SqsAddress
from outlast.queues.sqs.client import Rejected
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
MOST_PASSES = 200
"""How often a message is left to others, which takes two days: then there is nobody whom it is for."""

LONG_REST = 6
_log = logging.getLogger("outlast.sqs")


class TooLong(Exception):
    """SQS does not hide the message any longer."""


class Sender:
    """What happens to messages."""

    def __init__(self, calls: Calls, places: QueueUrls, clock: Clock) -> None:
        self._calls = calls
        self._places = places
        self._clock = clock
        self._has_told: set[str] = set()

    # -- sending ------------------------------------------------------------------------------

    async def send(
        self, queue: str, tasks: list[tuple[TaskMessage, float]], *, timeout: float | None
    ) -> None:
        """Send letters, each with the seconds that it has to be held back."""
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
        """The message for a letter that has to be held back for `wait` seconds. A FIFO queue drops
        what is `known_as` something that it was sent in the last five minutes."""
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
        """Send a copy, then delete the message: a crash in between doubles it and loses nothing."""
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
        """Leave a message to others, sooner the first times; not if that was in vain too often. A
        copy takes its place, so that this costs none of its attempts; in a FIFO queue, where that
        would cost it its turn, it is hidden."""
        times = message.received if place.is_fifo else _passed_on(message) + 1
        if times > MOST_PASSES:
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
        """Bury what nobody here can work on. Where there is no queue for dead letters it is hidden,
        for longer each time: it must hold up nobody, and is not ours to throw away."""
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
        """Move a message to the dead letters. Where those are left to SQS it stays hidden for now:
        shown again, it would only come back at once."""
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
        """Remove dead letters (all, or of those tasks), after `first` has been done with them."""
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
    """How often a message was left to others."""
    times = (message.note or "").removeprefix(PASSED_ON)
    return int(times) if times.isdecimal() else 0


def _rest(times: int) -> int:
    """Seconds: 1, 2, 4 …"""
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
