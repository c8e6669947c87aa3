"""A timer: the run wakes when the store's clock has reached a recorded moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from outlast.engine.operations.operation import Operation
from outlast.model.event import Event
from outlast.model.payloads import (
    Payload,
    TimerCancelled,
    TimerFired,
    TimerStarted,
    payload_of,
)


class TimerWait(Operation):
    """One wait for a moment. Cancelling it is recorded too, so that history alone says what the
    run still waits for."""

    name = "timer"

    def __init__(self, fire_at: datetime, fire: Callable[[], None]) -> None:
        self.fire_at = fire_at
        self._fire = fire
        self.cancelled = False

    def intent(self) -> Payload:
        return TimerStarted(fire_at=self.fire_at)

    def apply(self, event: Event) -> bool:
        match payload_of(event):
            case TimerStarted(fire_at=fire_at):
                self.recorded = True
                self.fire_at = fire_at
            case TimerFired():
                self._fire()
                return True
            case TimerCancelled():
                return True
        return False

    @property
    def busy(self) -> bool:
        return False
