"""Ask: a question to a person, open until it is answered or the code stops asking.

`outlast.ask` and `outlast.halt` are the same wait; a halt asks without a name, a form or an assignee. Each open
question is one of its own: the answer names it, and reaches no other (`outlast.model.asks`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from outlast.engine.operations.waits import MessageWait
from outlast.errors import OutlastError
from outlast.model.asks import OpenAsk, token_of
from outlast.model.event import Event
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
