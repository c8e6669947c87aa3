"""Call: one call of a workflow, before anything runs.

::

    order("Momo")                      a Call: the arguments fit, nothing has happened yet
    await app.start(order("Momo"))     a run of its own
    await order("Momo")                in a workflow: a child run, and its result

A call is inert and compares by identity: two equal calls are two children. It is a
`collections.abc.Coroutine`, so that `asyncio.gather`, `create_task` and `TaskGroup` take it in a workflow.
"""

from __future__ import annotations

import opcode
import sys
import warnings
from collections.abc import Coroutine, Generator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from outlast._public import public
from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.child import ChildRun, ParentClose
from outlast.engine.replay.execution import Execution, current_execution
from outlast.engine.replay.sync_workflow import current_sync_workflow
from outlast.errors import WorkflowMisuse
from outlast.model.queue_policy import QueueOptions

if TYPE_CHECKING:
    from outlast.decorators import Workflow

R_co = TypeVar("R_co", covariant=True)

DROPPING = ("POP_TOP", "POP_JUMP", "TO_BOOL")
"""Instructions that take a value and do not keep it."""


def workflow_here() -> Execution | None:
    """The run whose workflow code is calling, or None outside workflow code."""
    run = current_execution()
    if run is None and (thread := current_sync_workflow()) is not None:
        return thread.execution
    return run


@public
class Call(Coroutine[Any, Any, R_co]):
    """A workflow with its arguments. `App.start` starts it; a workflow awaits it as a child run."""

    __slots__ = (
        "_child", "_code", "_execution", "_line", "_made_at", "args", "is_used", "kwargs", "workflow",
    )  # fmt: skip

    def __init__(
        self, workflow: Workflow[..., R_co], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.workflow = workflow
        self.args = args
        self.kwargs = kwargs
        self._child: Coroutine[Any, Any, R_co] | None = None
        self.is_used = False
        self._execution = workflow_here()
        caller = sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._code, self._line, self._made_at = caller.f_code, caller.f_lineno, caller.f_lasti

    def __repr__(self) -> str:
        given = [repr(value) for value in self.args]
        given += [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"<call {self.workflow.name}({', '.join(given)})>"

    def as_child(
        self,
        execution: Execution,
        *,
        id: str | None = None,
        parent_close: ParentClose = ParentClose.CANCEL,
        queue: QueueOptions | None = None,
    ) -> Coroutine[Any, Any, R_co]:
        """The coroutine that runs it as a child of `execution`, once."""
        self.is_used = True
        name = self.workflow.name
        if self._child is not None:
            raise WorkflowMisuse(
                f"the call {name}(…) of {self._place} is awaited a second time: one call is "
                f"one child run. Keep its result, or call {name}(…) again for another child"
            )
        if self._execution is not execution:
            raise WorkflowMisuse(
                f"the call {name}(…) of {self._place} was made outside of the run that awaits it: a replay "
                f"would await the same call a second time. Call {name}(…) in the workflow"
            )
        operation = ChildRun(
            *(execution, self.workflow.definition, self.args, self.kwargs),
            id=id,
            parent_close=parent_close,
            queue_options=queue,
        )
        self._child = execution.perform(operation)
        return self._child

    def to_coroutine(self) -> Coroutine[Any, Any, R_co]:
        """The coroutine that runs it as a child of the calling workflow, for a task of its own."""
        execution = current_execution()
        if execution is None:
            self.is_used = True
            name = self.workflow.name
            raise WorkflowMisuse(
                f"`await {name}(…)` works in an `async def` workflow only, where it is a child run. "
                f"Elsewhere start a run: `await app.start({name}(…))`. A plain `def` workflow calls "
                f"`outlast.sync.child({name}(…))`"
            )
        return self.as_child(execution)

    # -- collections.abc.Coroutine ------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self.to_coroutine().__await__()

    def send(self, value: Any) -> Any:
        """Run it until it waits."""
        return (self._child or self.to_coroutine()).send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error where it waits."""
        return (self._child or self.to_coroutine()).throw(*error)

    def close(self) -> None:
        """Run no more of it."""
        self.is_used = True
        if self._child is not None:
            self._child.close()

    @property
    def _place(self) -> str:
        return f"{self._code.co_filename}:{self._line}"

    def __del__(self) -> None:
        run = self._execution
        if self.is_used or (run is not None and run.refuses_calls):
            return
        name = self.workflow.name
        if run is not None and self._is_dropped(sys._getframe(1)):  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            run.refuse(
                WorkflowMisuse(
                    f"the call {name}(…) at {self._place} is neither awaited nor kept, so no child run would "
                    f"start: write `await {name}(…)`, or in a plain `def` workflow "
                    f"`outlast.sync.child({name}(…))`"
                )
            )
            return
        warnings.warn_explicit(
            f"the call {name}(…) was never used, so no run has started: write "
            f"`await app.start({name}(…))`, or in a workflow `await {name}(…)`",
            RuntimeWarning,
            filename=self._code.co_filename,
            lineno=self._line,
        )

    def _is_dropped(self, frame: FrameType) -> bool:
        """Whether the instruction after the one that made it drops it: a statement of its own, or a condition. A call
        that was ever kept may be left over for a good reason, such as an early return."""
        code, at = self._code.co_code, self._made_at + 2
        if frame.f_code is not self._code:
            return False
        while code[at] == 0:  # the caches of an instruction
            at += 2
        return frame.f_lasti == at and opcode.opname[code[at]].startswith(DROPPING)


def mark_used(call: object) -> None:
    """Say that a call, if it is one, serves its purpose: no warning when it is garbage."""
    if isinstance(call, Call):
        call.is_used = True


def check_call(call: Any, where: str) -> Call[Any]:
    """The call, marked as used; an error that shows how to write it if it is none."""
    if isinstance(call, Call):
        call.is_used = True
        return call
    if isinstance(getattr(call, "definition", None), WorkflowDefinition):
        name = call.definition.name
        raise WorkflowMisuse(
            f"{where}({name}, …) has the workflow and not a call of it: write "
            f"{where}({name}(…)), with the arguments in the call"
        )
    if hasattr(call, "close") and hasattr(call, "send"):
        call.close()  # the coroutine of a step or a function: no second warning
    raise WorkflowMisuse(
        f"{where}({call!r}): this is not the call of a workflow. Decorate the function with "
        f"@outlast.workflow and call it: {where}(order(…))"
    )
