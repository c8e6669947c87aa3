"""A timer: the run wakes when the clock has reached a recorded moment.

`outlast.sleep`, `asyncio.sleep`, `asyncio.timeout` and `asyncio.wait(timeout=…)` in workflow code
all end here, because the run's loop has no other idea of time. One that never fires, as that of
``asyncio.sleep(math.inf)``, is not asked for: there would be nothing to record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from outlast.engine.operations.operation import Operation
from outlast.errors import InvalidValue
from outlast.model.event import Event
from outlast.model.payloads import Payload, TimerFired, TimerStarted
from outlast.model.times import moment_after

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


class TimerWait(Operation):
    """One wait for a moment."""

    name = "timer"
    wait_kind = "timer"
    ends_by_itself = True

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
    if math.isnan(seconds):
        raise InvalidValue(
            "asyncio was told to wait nan seconds: use a number, or math.inf for ever"
        )
    fire_at = moment_after(execution.now, seconds)
    if fire_at is None:
        return lambda: None
    timer = TimerWait(fire_at, fire)
    execution.ask(timer)
    return lambda: execution.abandon(timer)
