"""What an app is given: lists of workflows and of steps, and the definitions in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from outlast.api.declaring import Step, Workflow
from outlast.api.reachable import reachable
from outlast.engine.definition import StepDefinition, WorkflowDefinition
from outlast.errors import InvalidValue, WorkflowMisuse


def workflows_in(given: Iterable[object]) -> list[Workflow[..., Any]]:
    """The workflows that somebody has listed; typed errors for what is none."""
    found = []
    for one in _listed(given, "workflows", "checkout"):
        if not isinstance(one, Workflow):
            raise WorkflowMisuse(
                f"{one!r} is not a workflow: decorate the function with @outlast.workflow"
            )
        found.append(one)
    return found


def with_children(workflows: list[Workflow[..., Any]]) -> list[WorkflowDefinition]:
    """What these workflows are, and those that they may start; each has a name of its own."""
    given = [workflow.definition for workflow in workflows]
    names = [definition.name for definition in given]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise InvalidValue(
            f"two workflows are called {sorted(twice)}: give one another name, "
            "history knows them by it"
        )
    children = {workflow.name: workflow.definition for workflow in reachable(workflows)}
    return given + [one for name, one in children.items() if name not in names]


def queued_steps_in(given: Iterable[object]) -> list[StepDefinition]:
    """The steps that somebody has listed; typed errors for what is none, or not for a worker."""
    found = []
    for one in _listed(given, "steps", "render"):
        if not isinstance(one, Step):
            raise WorkflowMisuse(f"{one!r} is not a step: decorate the function with @outlast.step")
        if one.definition.queue is None:
            raise InvalidValue(
                f"step {one.definition.name!r} has no queue, so it runs where its run is: leave it out "
                "of `steps`, or declare it with step(queue=…)"
            )
        found.append(one.definition)
    return found


def _listed(given: Iterable[object], what: str, example: str) -> list[object]:
    try:
        return list(given)
    except TypeError:
        raise InvalidValue(f"{what}={given!r}: use a list, {what}=[{example}]") from None
