"""A timer: the run wakes when the clock has reached a recorded moment.

`outlast.sleep`, `asyncio.sleep`, `asyncio.timeout` and `asyncio.wait(timeout=…)` in workflow code
all end here, because the run's loop has no other idea of time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from outlast.engine.operations.operation import Operation
from outlast.model.event import Event
from outlast.model.payloads import Payload, TimerFired, TimerStarted

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


class TimerWait(Operation):
    """One wait for a moment."""

    name = "timer"
    wait_kind = "timer"

    def __init__(self, fire_at: datetime, fire: Callable[[], None]) -> None:
        self.fire_at = self.due = fire_at
        self._fire = fire

    def intent(self) -> Payload:
        return TimerStarted(fire_at=self.fire_at)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case TimerStarted(fire_at=fire_at):
                self.fire_at = self.due = fire_at
            case TimerFired():
                self._fire()
                return True
        return False


def start_timer(
    execution: Execution, seconds: float, fire: Callable[[], None]
) -> Callable[[], None]:
    """Ask for a timer; returns how to cancel it."""
    timer = TimerWait(execution.now + timedelta(seconds=seconds), fire)
    execution.ask(timer)
    return lambda: execution.abandon(timer)
