"""A signal: a message to a run by name, awaited with or without a time limit.

Signals wait in the inbox until somebody asks for their name; the first to ask gets the first that
came. Receiving one removes it from the inbox in the same commit that records it.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from outlast.engine.operations.operation import Operation
from outlast.errors import SignalTimeout
from outlast.model.event import Event
from outlast.model.inbox import Item
from outlast.model.payloads import Payload, SignalReceived, SignalWaiting
from outlast.model.payloads import SignalTimeout as TimedOut

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


class SignalWait(Operation):
    """One wait for one signal."""

    wait_kind = "signal"

    def __init__(
        self, execution: Execution, signal: str, type: Any, timeout: timedelta | None
    ) -> None:
        self.name = f"signal:{signal}"
        self.signal = signal
        self.timeout_at = None if timeout is None else execution.now + timeout
        self._execution = execution
        self._type = type

    def intent(self) -> Payload:
        return SignalWaiting(signal_name=self.signal, timeout_at=self.timeout_at)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case SignalWaiting(timeout_at=timeout_at):
                self.timeout_at = timeout_at
            case SignalReceived(payload=data):
                self.answer(self._execution.codec, data, self._type, f"signal {self.signal!r}")
                return True
            case TimedOut():
                self.reject(SignalTimeout(self.signal))
                return True
        return False

    @property
    def due(self) -> datetime | None:
        return self.timeout_at


class Mailbox:
    """Signals that have come and that nobody has asked for yet, by name, in order."""

    def __init__(self) -> None:
        self._items: dict[str, deque[Item]] = {}

    def put(self, item: Item) -> None:
        """A signal has come."""
        self._items.setdefault(item.name, deque()).append(item)

    def match(self, execution: Execution, now: datetime) -> None:
        """Hand signals to those who wait for them, as long as there are any."""
        while (found := self._next(execution)) is not None:
            wait, item = found
            execution.draft.folds.append(item.number)
            received = SignalReceived(signal_name=item.name, payload=item.data)
            execution.deliver(received, now, key=wait.key)

    def _next(self, execution: Execution) -> tuple[SignalWait, Item] | None:
        if not any(self._items.values()):
            return None
        for operation in execution.open.values():
            if isinstance(operation, SignalWait) and self._items.get(operation.signal):
                return operation, self._items[operation.signal].popleft()
        return None
