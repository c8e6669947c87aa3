"""Compensation: when a run fails or is cancelled, its completed steps are undone in reverse order.

A step with a compensation is registered when its completion is delivered, so the order is that of history; the same
holds for each item of a map. A step whose outcome is unknown (a crash, a timeout, a cut-off attempt) is registered when
that is known, and only undone by a compensation for unknown outcomes, which gets the idempotency key and the arguments.

Compensating is a coroutine of outlast that replaces the user's, once that is closed (`replay.closing`). Each
compensation is a step with the key ``undo/<the step's key>``, recorded, retried and resumed like any other. A cancel
does not reach it. One that fails for good, or does not accept the result, does not keep the others from running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from outlast.engine.definitions.raised import step_failure
from outlast.engine.operations.step import step_call
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
"""The scope of all compensations."""


class Undo(NamedTuple):
    """A step that has to be undone, and the step that does it, if there is one."""

    key: str
    step: StepDefinition | None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 - never changed
    is_unknown: bool = False


class Compensations:
    """What a run would have to undo, and the coroutine that does it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._registered: list[Undo] = []
        self.has_started = False

    def register(self, key: str, step: StepDefinition, result: Any) -> None:
        """Remember a completed step if it has a compensation."""
        if step.compensation is not None and not self.has_started:
            self._registered.append(Undo(key, step.compensation, (result,)))

    def register_unknown(
        self, key: str, call: Operation, step: StepDefinition, args: Any, kwargs: Any
    ) -> None:
        """Remember a step, requested by `call`, whose outcome stays unknown."""
        if step.is_undoable and not self.has_started:
            idempotency_key = f"{self._execution.life_of(call)}/{key}"
            undo = step.unknown_compensation
            self._registered.append(Undo(key, undo, (idempotency_key, *args), kwargs, True))

    def inside(self, path: str) -> bool:
        """Whether something below `path` has to be undone if the run fails, or may have to be."""
        below = f"{path}/"
        return any(undo.key.startswith(below) for undo in reversed(self._registered)) or any(
            operation.is_undoable and operation.key.startswith(below)
            for operation in self._execution.open.values()
        )

    def begin(self, main: asyncio.Task[Any]) -> Coroutine[Any, Any, Any] | None:
        """The coroutine that compensates a run whose code has ended; None if there is nothing to undo."""
        if self.has_started or not self._registered:
            return None
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if isinstance(error, ContinueAsNew | None):
            return None
        self.has_started = True
        return self._undo(error)

    async def _undo(self, error: BaseException) -> None:
        execution = self._execution
        undos = [undo for undo in reversed(self._registered) if undo.step is not None]
        failed = step_failure(error)
        started = CompensationStarted(
            trigger_step=failed.step if isinstance(failed, StepFailed) else "",
            steps_to_undo=[undo.key for undo in undos],
            unknown=[undo.key for undo in reversed(self._registered) if undo.is_unknown],
        )
        execution.record("undo", started)
        done, failures = [], 0
        for key, step, args, kwargs, _ in undos:
            assert step is not None
            try:
                await execution.perform(step_call(execution, step, args, kwargs, key))
                done.append(key)
            except OutlastError as failure:
                failures += 1
                text = failure.error if isinstance(failure, StepFailed) else str(failure)
                failure_of = CompensationFailed(failed_step=key, error=text)
                execution.record(f"{UNDO}{key}", failure_of)
        if not failures:
            execution.record("undo", CompensationCompleted(steps_compensated=done))
        raise error
