"""Compensation: when a run fails or is cancelled, what its steps did is undone in reverse.

A step with a compensation is registered when its completion is delivered, so the order is the
order of history; so is each item of a map. One whose outcome is unknown (its process died, it took
too long, it was cut off) is registered when that is known, and is undone only by a compensation for
that, which gets its idempotency key and its arguments.

Undoing is a coroutine of our own that takes the place of the user's, once that is closed
(`engine.closing`): each undo is a step with the key ``undo/<the step's key>``, recorded, retried and
resumed like any other. A cancel does not reach it, and one undo that fails for good, or that does
not fit the result, does not keep the others from running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.engine.operations.queued_step import step_call
from outlast.errors import ContinueAsNew, OutlastError, StepFailed
from outlast.model.payloads import (
    CompensationCompleted,
    CompensationFailed,
    CompensationStarted,
)

if TYPE_CHECKING:
    from outlast.engine.definitions.definition import StepDefinition
    from outlast.engine.operations.operation import Operation
    from outlast.engine.replay.execution import Execution

UNDO = "undo/"
"""The scope of all undoing."""


class Undo(NamedTuple):
    """A step that has to be undone, with what undoes it, if there is a way."""

    key: str
    step: StepDefinition | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed
    is_unknown: bool = False


class Undoing:
    """What a run would have to undo, and the undoing of it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._registered: list[Undo] = []
        self.begun = False

    def register(self, key: str, step: StepDefinition, result: Any) -> None:
        """A step has completed; if it has a compensation, remember what to undo."""
        if step.compensation is not None and not self.begun:
            self._registered.append(Undo(key, step.compensation, (result,)))

    def register_unknown(
        self, key: str, call: Operation, step: StepDefinition, args: Any, kwargs: Any
    ) -> None:
        """Nobody will know whether a step, asked for by `call`, has been done."""
        if step.is_undoable and not self.begun:
            idempotency_key = f"{self._execution.life_of(call)}/{key}"
            undo = step.unknown_compensation
            self._registered.append(Undo(key, undo, (idempotency_key, *args), kwargs, True))

    def inside(self, path: str) -> bool:
        """Whether something below `path` would have to be undone, or might yet."""
        below = f"{path}/"
        return any(undo.key.startswith(below) for undo in reversed(self._registered)) or any(
            operation.is_undoable and operation.key.startswith(below)
            for operation in self._execution.open.values()
        )

    def begin(self, main: asyncio.Task[Any]) -> Coroutine[Any, Any, Any] | None:
        """The coroutine that undoes a run whose code has ended, or None if nothing is to be."""
        if self.begun or not self._registered:
            return None
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if isinstance(error, ContinueAsNew | None):
            return None
        self.begun = True
        return self._undo(error)

    async def _undo(self, error: BaseException) -> None:
        execution = self._execution
        undos = [undo for undo in reversed(self._registered) if undo.step is not None]
        started = CompensationStarted(
            trigger_step=getattr(error, "step", "") if isinstance(error, StepFailed) else "",
            steps_to_undo=[undo.key for undo in undos],
            unknown=[undo.key for undo in reversed(self._registered) if undo.is_unknown],
        )
        execution.say("undo", started)
        done, failed = [], 0
        for key, step, args, kwargs, _ in undos:
            assert step is not None
            try:
                await execution.answer(step_call(execution, step, args, kwargs, key))
                done.append(key)
            except OutlastError as failure:
                failed += 1
                text = failure.error if isinstance(failure, StepFailed) else str(failure)
                failure_of = CompensationFailed(failed_step=key, error=text)
                execution.say(f"{UNDO}{key}", failure_of)
        if not failed:
            execution.say("undo", CompensationCompleted(steps_compensated=done))
        raise error
