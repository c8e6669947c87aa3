"""Closing: how a run that failed or was cancelled finishes what is in flight before it is compensated.

::

    the code fails ─▶ its tasks are cancelled ─▶ steps in flight are awaited ─▶ compensation.started
                      (`finally` may call steps)                                (calls are refused)

A step that is cut off has an unknown outcome and cannot be undone. So once a run is cancelled or has failed, a step,
map or child that the code abandons runs to its end (``operation.abandoned`` with `awaited`), and its outcome is
recorded. Before that, only operations with a compensation run to their end.

All of this follows from history: a replay closes a run at the same event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from outlast.engine.operations.compensation import UNDO
from outlast.errors import ContinueAsNew, RunEnding

if TYPE_CHECKING:
    from outlast.engine.operations.operation import Operation
    from outlast.engine.replay.execution import Execution

MAX_CALLS = 100
"""How many operations code may request after its run has failed: enough for a ``finally``, and a limit for code that
catches its cancellation and never ends."""


class Closing:
    """Ends the code of one run after its failure or cancellation."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._calls = 0
        self.has_started = False
        """Whether operations in flight are awaited even if the code abandons them."""
        self.has_failed = False
        """Whether the workflow's main task has failed or was cancelled."""
        self.over = False
        """Whether no code is left and nothing is in flight: compensation can start."""

    def awaits(self, operation: Operation) -> bool:
        """Whether an operation that the code abandons runs to its end."""
        return operation.may_run and (self.has_started or operation.is_undoable)

    def cancel(self, main: asyncio.Task[Any] | None, reason: str) -> None:
        """Cancel the workflow's main task or, if that has ended, the tasks that it left."""
        if main is None or self.over:
            return
        self.has_started = True
        if main.done():
            self._cancel_tasks()
        else:
            main.cancel(reason)

    def advance(self, main: asyncio.Task[Any]) -> bool:
        """Continue to close a run whose main task has ended, when nothing is ready; True when it is closed now."""
        if self.over:
            return False
        if not self.has_failed and _has_failed(main):
            self.has_started = self.has_failed = self._execution.is_guarded = True
            self._cancel_tasks()
            self._execution.drain()
        if self._is_waiting():
            return False
        if self.has_failed:
            self._abandon_rest()
        self.over = True
        if self.has_failed:
            self._execution.loop.close_tasks()
        return True

    def check_call(self, *, asks: bool) -> None:
        """Refuse a call of the code of a failed run if it is over, or has made too many."""
        if self._execution.scope.path == UNDO:
            return
        self._calls += asks
        if self.over or self._calls > MAX_CALLS:
            raise RunEnding(self._execution.run_id)

    def _is_waiting(self) -> bool:
        """Whether something is in flight whose end has to be recorded. Other waits of a ``finally`` (for a signal,
        for a person) may never end."""
        open = self._execution.open.values()
        if any(operation.is_awaited for operation in open):
            return True
        return (
            self.has_failed
            and any(operation.ends_by_itself and not operation.is_abandoned for operation in open)
            and bool(self._execution.loop.tasks())
        )

    def _cancel_tasks(self) -> None:
        for task in self._execution.loop.tasks():
            task.cancel("the run has ended")

    def _abandon_rest(self) -> None:
        """Nothing is in flight any more: code that still waits is closed like evicted code."""
        execution = self._execution
        execution.updates.cancel_open()
        for operation in list(execution.open.values()):
            execution.force_abandon(operation)


def _has_failed(main: asyncio.Task[Any]) -> bool:
    return main.cancelled() or not isinstance(main.exception(), ContinueAsNew | None)
