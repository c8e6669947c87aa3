"""Sender: sends, hides and deletes messages, and moves them to the dead letters.

SQS delays a message for at most 15 minutes, and a FIFO queue cannot delay single messages: a later due time is in the
message, and the process that receives it early handles it.

Dead letters are a second SQS queue with the same messages and a note of the reason. SQS cannot read a queue without
receiving. To list dead letters they are received, which hides them for a moment, and made visible again; a concurrent
list sees the others. Messages that SQS itself has moved there by a redrive policy have the same form, without a note.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from datetime import datetime, timedelta
from math import ceil

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.errors import NotFound, UnknownOutcome
from outlast.model.run_contents import DeadTask, Task
from outlast.model.times import from_micros, to_micros
from outlast.ports.clock import Clock
from outlast.queues.sqs.client import BATCH, Calls, Entry, Rejected, SqsAddress
from outlast.queues.sqs.message import (
    MAX_MESSAGE,
    NOTE,
    ROOM_FOR_REASON,
    Message,
    NotOurs,
    TaskMessage,
    body_of,
    group_of,
    once,
    read,
    task_of,
)
from outlast.queues.sqs.queue_urls import QueueUrls

LIST_HIDDEN_S = 60
"""Seconds for which dead letters are hidden while they are listed."""


class Note(Struct, frozen=True, omit_defaults=True):
    """Why a letter is dead, since when (microseconds), and after how many attempts."""

    reason: str = "received too often: moved here by the redrive policy of SQS"
    died_at: int = 0
    attempt: int = 0


class DeadLetter(Struct, frozen=True):
    """A dead letter as it was received, and its content. Without `letter` it is not a message of outlast."""

    message: Message
    letter: TaskMessage | None
    dead: DeadTask


def dead_entry(message: Message, *, reason: str, attempt: int, now: datetime) -> Entry:
    """The message for the dead letters: the same text, with a note."""
    note = json.dumps(
        {"reason": reason[: ROOM_FOR_REASON // 8], "died_at": to_micros(now), "attempt": attempt}
    )
    # A message of others may fill its own to the brim: then its end makes room for the note.
    room = MAX_MESSAGE - ROOM_FOR_REASON
    body = message.body.encode()[:room].decode(errors="ignore")
    return {
        "MessageBody": body or " ",
        "MessageAttributes": {NOTE: {"DataType": "String", "StringValue": note}},
    }


def in_fifo(entry: Entry, message: Message) -> Entry:
    """The same for a FIFO queue. A group of its own: one letter must not hide another."""
    ids = {"MessageGroupId": once(message.id), "MessageDeduplicationId": once(message.id)}
    return {**entry, **ids}


async def collect(
    calls: Calls, place: SqsAddress, *, queue: str, limit: int | None, timeout: float | None
) -> list[DeadLetter]:
    """Receive dead letters, all or up to `limit`, longest dead first. They are hidden for a while: those that are not
    deleted have to be made visible again."""
    found: dict[str, DeadLetter] = {}
    while limit is None or len(found) < limit:
        count = BATCH if limit is None else min(BATCH, limit - len(found))
        messages = await calls.receive(place, seconds=LIST_HIDDEN_S, count=count, timeout=timeout)
        fresh = {one.id: _read(one, queue) for one in messages if one.id not in found}
        if not fresh:
            break
        found.update(fresh)
    return sorted(found.values(), key=lambda one: one.dead.died_at)


async def show_again(
    calls: Calls, place: SqsAddress, letters: Collection[DeadLetter], *, timeout: float | None
) -> None:
    """Make listed letters visible again."""
    entries = [{"ReceiptHandle": one.message.handle, "VisibilityTimeout": 0} for one in letters]
    await calls.batch("change_message_visibility_batch", place, entries, timeout=timeout)


def revived(dead: DeadLetter, *, fifo: bool) -> Entry:
    """The message that makes a dead task ready again with fresh attempts."""
    letter = dead.letter
    if letter is None:
        entry: Entry = {"MessageBody": dead.message.body}
        group = once(dead.message.id)
    else:
        fresh = msgspec.structs.replace(letter, before=0, due=0, held_back=0.0, holder=0)
        entry = {"MessageBody": body_of(fresh)}
        group = group_of(letter.task)
    if fifo:
        # Not the id of the task: SQS may still know it, and would drop the message.
        entry |= {"MessageGroupId": group, "MessageDeduplicationId": once(dead.message.id)}
    return entry


def _read(message: Message, queue: str) -> DeadLetter:
    try:
        note = msgspec.json.decode(message.note or "{}", type=Note)
    except msgspec.MsgspecError:
        note = Note(reason="unknown: its note is damaged")
    died_at = from_micros(note.died_at or message.sent_ms * 1000)
    try:
        letter = read(message.body)
        task = task_of(letter, queue=queue, attempt=note.attempt)
    except NotOurs:
        letter = None
        text = Raw(json.dumps(message.body).encode())
        task = Task(id=message.id, queue=queue, kind="foreign", input=text, attempt=note.attempt)
    return DeadLetter(message, letter, DeadTask(task, note.reason, died_at))


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
