"""Compensation: when a run fails or is cancelled, what its steps did is undone in reverse.

A step with a compensation is registered when its completion is delivered, so the order is the
order of history; so is each item of a map. Undoing is a coroutine of our own that takes the place
of the user's: each undo is a step with the key ``undo/<the step's key>``, recorded, retried and
resumed like any other. A cancel does not reach it, and one undo that fails for good, or that does
not fit the result, does not keep the others from running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from outlast.engine.operations.remote import step_call
from outlast.errors import OutlastError, StepFailed
from outlast.model.payloads import (
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
)

if TYPE_CHECKING:
    from outlast.engine.definition import StepDefinition
    from outlast.engine.execution import Execution


class Undoing:
    """What a run would have to undo, and the undoing of it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._registered: list[tuple[str, StepDefinition, Any]] = []
        self.begun = False

    def register(self, key: str, step: StepDefinition, result: Any) -> None:
        """A step has completed; if it has a compensation, remember what to undo."""
        if step.compensation is not None and not self.begun:
            self._registered.append((key, step.compensation, result))

    def inside(self, path: str) -> bool:
        """Whether something below `path` would have to be undone."""
        return any(key.startswith(f"{path}/") for key, _, _ in reversed(self._registered))

    def begin(self, main: asyncio.Task[Any]) -> Coroutine[Any, Any, Any] | None:
        """The coroutine that undoes a run whose code has ended, or None if nothing is to be."""
        if self.begun or not self._registered:
            return None
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if error is None or not isinstance(error, Exception | asyncio.CancelledError):
            return None
        self.begun = True
        return self._undo(error)

    async def _undo(self, error: BaseException) -> None:
        execution = self._execution
        steps = list(reversed(self._registered))
        trigger = getattr(error, "step", "") if isinstance(error, StepFailed) else ""
        keys = [key for key, _, _ in steps]
        execution.say("undo", CompensationStarted(trigger_step=trigger, steps_to_undo=keys))
        done, failed = [], 0
        for key, undo, result in steps:
            try:
                await execution.answer(step_call(execution, undo, (result,), {}, key))
                done.append(key)
            except OutlastError as failure:
                failed += 1
                text = failure.error if isinstance(failure, StepFailed) else str(failure)
                failure_of = CompensationFailed(failed_step=key, error=text)
                execution.say(f"undo/{key}", failure_of)
        if not failed:
            execution.say("undo", CompensationCompleted(steps_compensated=done))
        raise error
