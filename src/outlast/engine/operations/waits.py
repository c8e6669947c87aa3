"""Waits: for a moment (timer), for a message (signal). `ask` has the wait for a person.

`outlast.sleep`, `asyncio.sleep`, `asyncio.timeout` and `asyncio.wait(timeout=…)` in workflow code all create a timer,
because the run loop has no other clock. A timer that never fires, as of ``asyncio.sleep(math.inf)``, is not recorded.

A signal stays in the inbox until the code waits for its name: the first wait gets the oldest signal
(`runner.inbox_reader`). Receiving it removes it from the inbox in the commit that records it. A message that does not
have the type that the code waits for is recorded as rejected, and the code waits on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.operations.operation import Operation
from outlast.errors import InvalidValue, SignalTimeout, Undecodable
from outlast.model.event import Event
from outlast.model.payloads import (
    NULL,
    Payload,
    SignalReceived,
    SignalTimeoutEvent,
    SignalWaiting,
    TimerFired,
    TimerStarted,
)
from outlast.model.run import WaitKind
from outlast.model.times import moment_after

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class TimerWait(Operation):
    """A wait for a moment."""

    name = "timer"
    wait_kind = WaitKind.TIMER
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
    """Request a timer; returns a function that cancels it."""
    if math.isnan(seconds):
        raise InvalidValue("asyncio cannot wait nan seconds: use a number, or math.inf for ever")
    fire_at = moment_after(execution.now, seconds)
    if fire_at is None:
        return lambda: None
    timer = TimerWait(fire_at, fire)
    execution.request(timer)
    return lambda: execution.abandon(timer)


class MessageWait(Operation):
    """A wait for a message of a type."""

    _execution: Execution
    _type: Any
    _what: str
    """What errors call the message."""

    def decoded(self, data: Raw | None) -> Any:
        """The message as the code gets it. A recorded one that does not fit any more is `Undecodable`: the code
        does not fit its history, and the run is parked."""
        return self._execution.codec.decode(data or NULL, self._type, where=self._what)

    def problem_of(self, data: Raw | None) -> str | None:
        """Why a message does not have the type that the code waits for; None if it has it. A message that this
        process cannot read at all (a key or a transform is missing) is `Undecodable`."""
        try:
            self.decoded(data)
        except Undecodable as error:
            self._execution.codec.decode(data or NULL, where=self._what)
            return str(error)
        return None


class SignalWait(MessageWait):
    """A wait for one signal."""

    wait_kind = WaitKind.SIGNAL

    def __init__(self, execution: Execution, signal: str, type: Any, timeout: float | None) -> None:
        self.name = f"signal:{signal}"
        self.signal = signal
        self.due = None if timeout is None else moment_after(execution.now, timeout)
        self._execution = execution
        self._type = type
        self._what = f"signal {signal!r}"

    def intent(self) -> Payload:
        return SignalWaiting(signal_name=self.signal, timeout_at=self.due)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case SignalWaiting(timeout_at=timeout_at):
                self.due = timeout_at
            case SignalReceived(payload=data):
                self.resolve(self.decoded(data))
                return True
            case SignalTimeoutEvent():
                self.reject(SignalTimeout(self.signal))
                return True
        return False
