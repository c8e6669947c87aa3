"""What user code calls: `workflow` and `step` to declare, and what a workflow may await."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from outlast.engine.definition import StepDefinition, WorkflowDefinition
from outlast.engine.execution import current_execution
from outlast.errors import WorkflowMisuse

P = ParamSpec("P")
R = TypeVar("R")


class Step(Generic[P, R]):
    """A step: awaited in a workflow it is recorded; called anywhere else it is the function."""

    def __init__(self, definition: StepDefinition) -> None:
        self.definition = definition
        update_wrapper(self, definition.function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        execution = current_execution()
        if execution is None:
            return self.definition.function(*args, **kwargs)
        return execution.call_step(self.definition, args, kwargs)


def step(function: Callable[P, R | Coroutine[Any, Any, R]]) -> Step[P, R]:
    """Declare a step: what it returns is recorded, and once recorded it never runs again."""
    return Step(StepDefinition(function))


def workflow(function: Callable[P, Coroutine[Any, Any, R]]) -> WorkflowDefinition:
    """Declare a workflow: an async function whose awaits are recorded."""
    return WorkflowDefinition(function)


async def sleep(seconds: float) -> None:
    """Sleep durably: the run may leave memory and the process may end meanwhile."""
    if current_execution() is None:
        raise WorkflowMisuse("outlast.sleep() works in a workflow only: use asyncio.sleep() here")
    await asyncio.sleep(seconds)
