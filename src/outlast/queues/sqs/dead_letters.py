"""Dead letters: a second SQS queue with the same messages and a note of the reason.

SQS cannot read a queue without receiving. To list dead letters they are received, which hides them for a moment, and
made visible again; a concurrent list sees the others. Messages that SQS itself has moved here by a redrive policy
have the same form, without a note.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime

import msgspec
from msgspec import Raw, Struct

from outlast.model.run_contents import DeadTask, Task
from outlast.model.times import from_micros, to_micros
from outlast.queues.sqs.client import BATCH, Calls, Entry, SqsAddress
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
