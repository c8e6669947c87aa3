"""Halt: the run waits for a person, showing what it wants to know, until it is resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from outlast.engine.operations.operation import Operation
from outlast.engine.signature import type_of_value
from outlast.model.event import Event
from outlast.model.payloads import HaltResumed, HaltStarted, Payload

if TYPE_CHECKING:
    from outlast.engine.execution import Execution


class HaltWait(Operation):
    """One question to a person."""

    name = "halt"
    wait_kind = "halt"

    def __init__(self, execution: Execution, data: Any, type: Any) -> None:
        self._execution = execution
        self._type = type
        self.data: Raw = execution.codec.encode(data, type_of_value(data), where="halt data")

    def intent(self) -> Payload:
        return HaltStarted(data=self.data)

    def apply(self, event: Event, payload: Payload) -> bool:
        if isinstance(payload, HaltResumed):
            self.answer(self._execution.codec, payload.value, self._type, "resume value")
            return True
        return False
