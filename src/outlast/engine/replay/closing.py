"""Closing: how a run that has failed or was cancelled comes to rest before anything is undone.

::

    the code fails ─▶ its branches are cancelled ─▶ what runs is awaited ─▶ compensation.started
                      (`finally` may call steps)                            (nothing can be asked for)

A step that was cut off has an unknown outcome and cannot be undone. So from the moment a run is
cancelled or has failed, code that stops waiting for a step, a map or a child leaves it running
(``operation.abandoned`` with `awaited`), and its outcome is recorded like any other. Outside of
that, the same holds for what has a compensation.

All of it follows from history: a replay closes a run at the same event.
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
"""What code may still ask for once its run has failed: enough for a ``finally``, and an end to code
that catches its cancellation and goes on for ever."""


class Closing:
    """The end of one run's code, from its failure or its cancellation on."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._calls = 0
        self.begun = False
        """Whether what runs is awaited, whatever the code does."""
        self.has_failed = False
        """Whether the workflow's own code has ended in an error, or was cancelled."""
        self.over = False
        """Whether no code is left and nothing runs: what was done can be undone."""

    def awaits(self, operation: Operation) -> bool:
        """Whether an operation that the code gives up goes on to its end all the same."""
        return operation.may_run and (self.begun or operation.is_undoable)

    def cancel(self, main: asyncio.Task[Any] | None, reason: str) -> None:
        """Cancel the workflow's own code or, if that has ended, what is left of its branches."""
        if main is None or self.over:
            return
        self.begun = True
        if main.done():
            self._cancel_branches()
        else:
            main.cancel(reason)

    def advance(self, main: asyncio.Task[Any]) -> bool:
        """Take a run whose own code has ended one step further, whenever it rests; True when it is
        closed now."""
        if self.over:
            return False
        if not self.has_failed and _has_failed(main):
            self.begun = self.has_failed = self._execution.is_guarded = True
            self._cancel_branches()
            self._execution.drain()
        if self._is_waiting():
            return False
        if self.has_failed:
            self._give_up_what_is_left()
        self.over = True
        if self.has_failed:
            self._execution.loop.close_tasks()
        return True

    def check_call(self, *, asks: bool) -> None:
        """Refuse what the code of a run that has failed may no longer ask for."""
        if self._execution.scope.path == UNDO:
            return
        self._calls += asks
        if self.over or self._calls > MAX_CALLS:
            raise RunEnding(self._execution.run_id)

    def _is_waiting(self) -> bool:
        """Whether something runs whose end has to be recorded. What a ``finally`` waits for besides
        (a signal, a person) may never come."""
        open = self._execution.open.values()
        if any(operation.is_awaited for operation in open):
            return True
        return (
            self.has_failed
            and any(operation.ends_by_itself and not operation.is_left for operation in open)
            and bool(self._execution.loop.tasks())
        )

    def _cancel_branches(self) -> None:
        for task in self._execution.loop.tasks():
            task.cancel("the run has ended")

    def _give_up_what_is_left(self) -> None:
        """Nothing runs any more: code that still waits is closed, like code that leaves memory."""
        execution = self._execution
        execution.updates.give_up()
        for operation in list(execution.open.values()):
            execution.give_up(operation)


def _has_failed(main: asyncio.Task[Any]) -> bool:
    return main.cancelled() or not isinstance(main.exception(), ContinueAsNew | None)
