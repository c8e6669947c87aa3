"""A signal: a message to a run by name, awaited with or without a time limit.

Signals wait in the inbox until somebody asks for their name; the first to ask gets the first that
came (`engine.mailbox`). Receiving one removes it from the inbox in the same commit that records it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outlast.engine.operations.operation import Operation
from outlast.errors import SignalTimeout
from outlast.model.event import Event
from outlast.model.payloads import Payload, SignalReceived, SignalWaiting
from outlast.model.payloads import SignalTimeout as TimedOut
from outlast.model.times import moment_after

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


class SignalWait(Operation):
    """One wait for one signal."""

    wait_kind = "signal"

    def __init__(self, execution: Execution, signal: str, type: Any, timeout: float | None) -> None:
        self.name = f"signal:{signal}"
        self.signal = signal
        self.due = None if timeout is None else moment_after(execution.now, timeout)
        self._execution = execution
        self._type = type

    def intent(self) -> Payload:
        return SignalWaiting(signal_name=self.signal, timeout_at=self.due)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case SignalWaiting(timeout_at=timeout_at):
                self.due = timeout_at
            case SignalReceived(payload=data):
                self.answer(self._execution.codec, data, self._type, f"signal {self.signal!r}")
                return True
            case TimedOut():
                self.reject(SignalTimeout(self.signal))
                return True
        return False
