"""A step: the user's function is called outside the workflow, and its outcome is recorded."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from msgspec import Raw

from outlast.engine.definition import StepDefinition
from outlast.engine.operations.operation import Operation
from outlast.errors import StepFailed
from outlast.model.event import Event
from outlast.model.payloads import Payload, StepCompleted, StepStarted, payload_of
from outlast.model.payloads import StepFailed as StepFailedPayload
from outlast.ports.codec import Codec


class StepCall(Operation):
    """One call of a step: attempts are counted in history before they run."""

    def __init__(
        self,
        step: StepDefinition,
        codec: Codec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        future: asyncio.Future[Any],
    ) -> None:
        self.name = step.name
        self.step = step
        self.future = future
        self.attempt = 0
        self.retry_at: datetime | None = None
        self._codec = codec
        # The body gets what a replay would decode, so that it cannot change the workflow's own
        # objects, and a value that does not survive the journey is refused here and now.
        self.input, self.args, self.kwargs = step.signature.encode_call(codec, args, kwargs)

    def intent(self) -> Payload:
        return StepStarted(attempt=self.attempt + 1, input=self.input)

    def next_attempt(self) -> Payload:
        """The intent of trying again: the input is in the first one."""
        return StepStarted(attempt=self.attempt + 1)

    def apply(self, event: Event) -> bool:
        match payload_of(event):
            case StepStarted(attempt=attempt):
                self.recorded = True
                self.attempt = attempt
                self.retry_at = None
            case StepFailedPayload(will_retry=True):
                self.retry_at = event.timestamp
            case StepCompleted():
                self._answer(self._decoded(event.output))
                return True
            case StepFailedPayload(error=error, attempt=attempt):
                self._fail(StepFailed(self.key, error, attempt))
                return True
        return False

    @property
    def busy(self) -> bool:
        return True

    def _decoded(self, output: Raw | None) -> Any:
        return self.step.signature.decode_result(self._codec, output or Raw(b"null"))

    def _answer(self, value: Any) -> None:
        if not self.future.done():
            self.future.set_result(value)

    def _fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
