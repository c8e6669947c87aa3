"""Operation: one thing that workflow code has asked for, open until history answers it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.errors import Undecodable
from outlast.model.event import Event
from outlast.model.payloads import Payload
from outlast.ports.codec import Codec

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class Operation(ABC):
    """Asked for once, under a key that replay finds again."""

    name: str
    key: str = ""
    recorded: bool = False
    asked_at: int = 0
    """The sequence of its intent, once that was read from history."""
    is_inherited: bool = False
    """Whether its intent was read from history: an earlier owner of the run may have begun it."""
    future: asyncio.Future[Any] | None = None
    wait_kind: str | None = None
    """What a run waits for that has nothing but this open; None if something is done for it."""
    due: datetime | None = None
    """When the run has to be woken for it, if at all."""
    is_left: bool = False
    """Whether the code no longer waits for it."""
    is_awaited: bool = False
    """Whether it goes on to its end, and that is recorded, though the code has left it."""
    may_run: bool = False
    """Whether something may be at work on it, so that its outcome is unknown if that is cut off."""
    ends_by_itself: bool = False
    """Whether its answer comes without any signal or person."""
    is_undoable: bool = False
    """Whether it has a compensation."""

    @abstractmethod
    def intent(self) -> Payload:
        """What to record before anything is done about it."""

    @abstractmethod
    def apply(self, event: Event, payload: Payload) -> bool:
        """Take in a recorded event of this key, its own intent included; True if it answers the
        operation, so that the code that awaits it goes on and it is no longer open."""

    def enact(self, execution: Execution, said: Payload) -> None:
        """Called once, never in replay, when an event of this operation enters the draft: what
        else has to be in that commit is added here."""
        return

    def cut_off(self, execution: Execution) -> None:
        """The code has left it, and its outcome will not be known."""
        return

    @property
    def busy(self) -> bool:
        """Whether something is being done for it in this process, so that the run stays here."""
        return self.wait_kind is None

    def is_call_with(self, input: Raw) -> bool:
        """Whether it was asked for with that input."""
        return False

    def resolve(self, value: Any) -> None:
        """Hand the answer to the code, if it still waits."""
        if self.future is not None and not self.future.done():
            self.future.set_result(value)

    def answer(self, codec: Codec, data: Raw | None, type: Any, where: str) -> None:
        """Hand what somebody else has sent to the code, or the error that it is something else:
        the code can ask again, and the sender cannot be told any more."""
        try:
            self.resolve(codec.decode(data or Raw(b"null"), type, where=where))
        except Undecodable as misfit:
            self.reject(misfit)

    def reject(self, error: BaseException) -> None:
        """Raise an error where the code waits, if it still does."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
