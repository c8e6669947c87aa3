"""A task as the text of a message, and the reading of received messages.

The text is ASCII JSON: SQS rejects some characters and changes others. The input of a task is kept byte for byte: as
text if it is printable ASCII, else in base64. Other text is not a message of outlast.

SQS counts deliveries, and a message cannot be changed. State is kept in the text of a copy that replaces the message:
how many attempts there were (`before`), when it is due if SQS cannot delay it for so long (`due`, `held_back`), and
which claim still holds it (`holder`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.errors import PayloadTooLarge
from outlast.model.run_contents import Task

VERSION = 1
MAX_MESSAGE = 262_144
"""Bytes: the limit of all queues; newer ones may accept more."""

ROOM_FOR_REASON = 2_048
MAX_BODY = MAX_MESSAGE - ROOM_FOR_REASON
"""A dead letter also has the reason."""

MAX_SENT = MAX_BODY - 256
"""A copy that replaces a message has more fields: reserve room for them."""

_plain = re.compile(r"[ -~]*").fullmatch
_group = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}").fullmatch


class Form(Struct, frozen=True):
    """The form number, in every message of outlast."""

    outlast: int


class TaskMessage(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The content of a message."""

    outlast: int
    task: Task
    input: str | None = None
    input64: str | None = None
    before: int = 0
    due: int = 0  # microseconds since 1970, by the clock of outlast
    held_back: float = 0.0  # seconds after sending, by the clock of SQS
    holder: int = 0  # the token of the claim that goes on with it


class Message(Struct, frozen=True):
    """A message as it was received."""

    id: str
    handle: str
    body: str
    received: int
    sent_ms: int
    first_received_ms: int
    note: str | None

    def attempt(self, letter: TaskMessage) -> int:
        """The number of this delivery. A delivery before the task was due does not count."""
        due_ms = self.sent_ms + letter.held_back * 1000
        was_early = letter.held_back > 0 and self.first_received_ms < due_ms
        return letter.before + self.received - was_early


class NotOurs(Exception):
    """The text is not a message of outlast; says why."""


class Newer(NotOurs):
    """A message of a newer form, for a newer worker."""


ATTRIBUTES = ["ApproximateReceiveCount", "SentTimestamp", "ApproximateFirstReceiveTimestamp"]
NOTE = "outlast"
"""The message attribute with the reason of a dead letter."""


def letter_of(task: Task) -> TaskMessage:
    """The message of a task."""
    letter = TaskMessage(outlast=VERSION, task=replace(task, input=None, attempt=0))
    if task.input is None:
        return letter
    data = bytes(task.input)
    text = data.decode("ascii", "replace")
    if _plain(text) and text.encode() == data:
        return replace(letter, input=text)
    return replace(letter, input64=base64.b64encode(data).decode())


def body_of(letter: TaskMessage) -> str:
    """The text of a message."""
    return json.dumps(msgspec.to_builtins(letter), separators=(",", ":"))


def check_size(letter: TaskMessage) -> None:
    """Reject a message that SQS would reject, itself or as a copy."""
    size = len(body_of(letter))
    if size > MAX_SENT:
        raise PayloadTooLarge(
            f"task {letter.task.id!r} makes a message of {size:,} bytes, SQS takes "
            f"{MAX_SENT:,}: keep its input in a store and send what names it, or let the engine "
            "do that: @step(queue=…) with a store, and SqsWakeups to wake the workers"
        )


def read(body: str) -> TaskMessage:
    """The content of a text; `NotOurs` if it is not a message of outlast."""
    try:
        form = msgspec.json.decode(body, type=Form).outlast
        if form > VERSION:
            raise Newer(f"a message of a newer outlast (form {form})")
        letter = msgspec.json.decode(body, type=TaskMessage)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise NotOurs("not a message of outlast") from None
    if form < 1 or not letter.task.id:
        raise NotOurs("not a message of outlast")
    return letter


def task_of(letter: TaskMessage, *, queue: str, attempt: int) -> Task:
    """The task of a message; `NotOurs` if its input is damaged."""
    input = None if letter.input is None else Raw(letter.input.encode())
    if letter.input64 is not None:
        try:
            input = Raw(base64.b64decode(letter.input64, validate=True))
        except ValueError:
            raise NotOurs("a message of outlast whose input is damaged") from None
    return replace(letter.task, queue=queue, attempt=attempt, input=input)


def received(answer: dict[str, Any]) -> list[Message]:
    """The messages in the response of ReceiveMessage."""
    return [_message(found) for found in answer.get("Messages", ())]


def _message(found: dict[str, Any]) -> Message:
    count, sent, first = [int(found.get("Attributes", {}).get(name, 0)) for name in ATTRIBUTES]
    note = found.get("MessageAttributes", {}).get(NOTE, {}).get("StringValue")
    ids = found["MessageId"], found["ReceiptHandle"]
    return Message(*ids, found["Body"], count, sent, first, note)


def group_of(task: Task) -> str:
    """The group of a task in a FIFO queue: its run, or itself without one."""
    name = task.run_id or task.id
    return name if _group(name) else _hash(name)


def once(*parts: str) -> str:
    """A deduplication id for a FIFO queue."""
    return _hash("\0".join(parts))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
