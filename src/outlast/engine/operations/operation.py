"""Operation: something that workflow code has requested, open until history answers it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.model.event import Event
from outlast.model.payloads import Payload
from outlast.model.run import WaitKind

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class Operation(ABC):
    """Requested once, under a key that a replay computes again."""

    name: str
    key: str = ""
    recorded: bool = False
    intent_sequence: int = 0
    """The sequence of its intent, if that was read from history."""
    is_inherited: bool = False
    """Whether its intent was read from history: an earlier owner of the run may have started it."""
    future: asyncio.Future[Any] | None = None
    wait_kind: WaitKind | None = None
    """The wait kind of a run that has only this open; None if this process works on it."""
    due: datetime | None = None
    """When the run has to be woken for it, if at all."""
    is_abandoned: bool = False
    """Whether the code no longer waits for it."""
    is_awaited: bool = False
    """Whether it runs to its end, which is recorded, though the code has abandoned it."""
    may_run: bool = False
    """Whether it may be executing, so that its outcome is unknown if it is cut off."""
    ends_by_itself: bool = False
    """Whether its answer comes without a signal or a person."""
    is_undoable: bool = False
    """Whether it has a compensation."""

    @abstractmethod
    def intent(self) -> Payload:
        """The event to record before anything is executed for it."""

    @abstractmethod
    def apply(self, event: Event, payload: Payload) -> bool:
        """Apply a recorded event of this key, its own intent included; True if the event answers the operation, which
        is then no longer open."""

    def on_recorded(self, execution: Execution, payload: Payload) -> None:
        """Called once, never in replay, when an event of this operation is added to the pending commit: adds what else
        that commit has to contain."""
        return

    def on_cut_off(self, execution: Execution) -> None:
        """Called when the code abandons it and its outcome will not be known."""
        return

    @property
    def is_busy(self) -> bool:
        """Whether this process works on it, so that the run stays in memory."""
        return self.wait_kind is None

    def is_call_with(self, input: Raw) -> bool:
        """Whether it was requested with that input."""
        return False

    def resolve(self, value: Any) -> None:
        """Return the answer to the code, if it still waits."""
        if self.future is not None and not self.future.done():
            self.future.set_result(value)

    def reject(self, error: BaseException) -> None:
        """Raise an error where the code waits, if it still does."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)
