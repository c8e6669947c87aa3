"""Ask: a question to a person, open until it is answered or the code stops asking.

`outlast.ask` and `outlast.halt` are the same wait; a halt asks without a name, a form or an assignee. Each open
question is one of its own: the answer names it, and reaches no other (`outlast.model.asks`).

Notifications, reminders and the escalation are a task beside the wait that sleeps and calls a step, so they are durable
like all that a workflow does. The task ends with the wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.engine.operations.waits import MessageWait
from outlast.errors import InvalidValue, OutlastError
from outlast.model.asks import Ask, OpenAsk, ask_id, token_of
from outlast.model.event import Event
from outlast.model.ids import check_name
from outlast.model.payloads import (
    HaltReassigned,
    HaltResumed,
    HaltStarted,
    MessageRejected,
    Payload,
)
from outlast.model.run import WaitKind

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class Question(Struct, frozen=True, kw_only=True):
    """What a person is asked. `due_at` is when it should be answered."""

    name: str = ""
    title: str = ""
    data: Any = None
    to: str = ""
    due_at: datetime | None = None

    def __post_init__(self) -> None:
        if self.to:
            check_name(self.to, f"`to` of the question {self.name!r}")


def due_at(now: datetime, due: timedelta | datetime | None) -> datetime | None:
    """When a question should be answered."""
    if isinstance(due, timedelta):
        return now + due
    given: object = due
    if due is not None and (not isinstance(given, datetime) or given.tzinfo is None):
        raise InvalidValue(f"due={due!r}: use a timedelta, or a datetime with a time zone")
    return due


class AskWait(MessageWait):
    """A wait for the answer of a person."""

    wait_kind = WaitKind.HALT

    def __init__(self, execution: Execution, question: Question, type: Any) -> None:
        self.name = f"ask:{question.name}" if question.name else "halt"
        self._execution = execution
        self._type = type
        self._what = f"answer to {question.name!r}" if question.name else "resume value"
        self._question = question
        self.asked = HaltStarted(
            data=execution.codec.encode_untyped(question.data, where=f"data of {self.name!r}"),
            name=question.name,
            title=question.title,
            to=question.to,
            due_at=question.due_at,
            schema=execution.codec.schema(type),
        )
        self.to = question.to
        self.sequence = 0
        """The sequence of the event that asks, once it is part of a commit."""
        self.rejected = 0
        """How many answers were rejected."""
        if self.asked.schema is not None:
            execution.workflow.asked_types[bytes(self.asked.schema)] = type

    def intent(self) -> Payload:
        self.asked = replace(self.asked, id=token_of(self._execution.uid, self.key))
        return self.asked

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case HaltStarted():
                # A retried run takes over questions of its earlier lives, which keep their ids.
                self.asked, self.to = payload, payload.to
                self.sequence = event.sequence
            case HaltReassigned(to=to):
                self.to = to
            case MessageRejected():
                self.rejected += 1
            case HaltResumed(value=value):
                self.resolve(self.decoded(value))
                return True
        return False

    @property
    def data(self) -> Raw:
        """What is shown to the person."""
        return self.asked.data

    @property
    def token(self) -> str:
        """What distinguishes the question from all others of its run."""
        return self.asked.id

    def as_open(self) -> OpenAsk:
        """The question as the attributes of its run have it."""
        return OpenAsk(self.token, self.sequence, self.rejected, self.to)

    def asks_the_same(self, earlier: HaltStarted) -> bool:
        """Whether an earlier life of the run asked the same: then its answer still counts. Compared as values: the
        same data may be encrypted differently."""
        now, codec = self.asked, self._execution.codec
        same = (now.name, now.title, bytes(now.schema or b"")) == (
            earlier.name,
            earlier.title,
            bytes(earlier.schema or b""),
        )
        try:
            return same and bool(codec.decode(now.data) == codec.decode(earlier.data))
        except OutlastError:
            return False

    def as_ask(self, asked_at: datetime) -> Ask:
        """The question as a notification gets it."""
        asked, execution = self.asked, self._execution
        data = execution.codec.decode(asked.data, where="data of a question")
        return Ask(
            id=ask_id(execution.run_id, asked.id),
            run_id=execution.run_id,
            workflow=execution.workflow.name,
            name=asked.name,
            title=asked.title or asked.name,
            to=self.to,
            data=msgspec.to_builtins(data, enc_hook=str),
            schema=None if asked.schema is None else msgspec.json.decode(asked.schema),
            asked_at=asked_at,
            due_at=asked.due_at,
        )


Notify = Callable[[Ask, str], Awaitable[Any]]


class FollowUp(Struct, frozen=True, kw_only=True):
    """What happens while a question is open: `notify` is called with it and a reason when it is asked, every `remind`,
    and when it is overdue; then it is to `escalate`."""

    notify: Notify | None = None
    remind: timedelta | None = None
    escalate: str = ""

    def __post_init__(self) -> None:
        if self.escalate:
            check_name(self.escalate, "`escalate` of a question")
        if self.remind is not None and (self.remind <= timedelta(0) or self.notify is None):
            raise InvalidValue(
                f"remind={self.remind!r}: use a positive timedelta, and name the step to call, notify=…"
            )


async def ask(execution: Execution, wait: AskWait, follow_up: FollowUp) -> Any:
    """Ask, and follow up until the question is answered or the code stops asking."""
    if follow_up.escalate and wait.asked.due_at is None:
        raise InvalidValue(f"escalate={follow_up.escalate!r}: say when, due=…")
    if follow_up.notify is None and not follow_up.escalate:
        return await execution.perform(wait)
    # It starts when this task waits: then the question is asked.
    following = asyncio.ensure_future(_follow_up(execution, wait, follow_up))
    try:
        return await execution.perform(wait)
    finally:
        following.cancel()


async def _follow_up(execution: Execution, wait: AskWait, follow_up: FollowUp) -> None:
    asked_at = execution.now

    async def notify(reason: str) -> None:
        if follow_up.notify is not None:
            try:
                await follow_up.notify(wait.as_ask(asked_at), reason)
            except Exception:  # noqa: BLE001 - recorded as a failed step; the question stays open
                return

    await notify("asked")
    due, remind = wait.asked.due_at, follow_up.remind
    reminder = None if remind is None else asked_at + remind
    while due is not None or reminder is not None:
        moment = min(each for each in (due, reminder) if each is not None)
        await asyncio.sleep(max((moment - execution.now).total_seconds(), 0))
        if moment == due:
            due = None
            if follow_up.escalate:
                execution.record(wait.key, HaltReassigned(to=follow_up.escalate), wait)
                wait.to = follow_up.escalate
            await notify("overdue")
        else:
            await notify("reminder")
        # Those that were missed while no worker ran are not made up.
        while remind is not None and reminder is not None and reminder <= execution.now:
            reminder += remind
