"""Where are we? Inside a workflow, and of which kind, or outside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from outlast.engine.bridge import current_bridge
from outlast.engine.execution import Execution, current_execution
from outlast.errors import WorkflowMisuse


def workflow_here() -> Execution | None:
    """The run whose workflow code is calling, or None outside workflow code."""
    run = current_execution()
    if run is None and (bridge := current_bridge()) is not None:
        return bridge.execution
    return run


def the_run(name: str) -> Execution:
    """The run whose workflow code calls `outlast.name`, which works nowhere else."""
    run = workflow_here()
    if run is None:
        raise WorkflowMisuse(
            f"outlast.{name}() works in a workflow only: call it from a function that is decorated "
            "with @outlast.workflow and started with app.start(…). Steps and other code use what "
            "Python has, such as asyncio.sleep()"
        )
    return run


def perform(
    ask: Callable[[Execution], Coroutine[Any, Any, Any]], name: str = ""
) -> Coroutine[Any, Any, Any]:
    """Ask in the way of the workflow that is calling: a coroutine to await, or the answer."""
    question = ask(the_run(name))
    bridge = current_bridge()
    if bridge is None:
        return question
    answer: Coroutine[Any, Any, Any] = bridge.call(question)
    return answer
