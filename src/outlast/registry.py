"""What an app is given: lists of workflows and of steps, and the definitions in them.

Which workflows a workflow may start as children: those that its code names.

An app that has a parent's code has its children's too, so they need not be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import getclosurevars
from types import CodeType, ModuleType
from typing import Any

from outlast.decorators import Step, Workflow
from outlast.engine.definitions.definition import StepDefinition, WorkflowDefinition
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


def reachable(workflows: Iterable[Workflow[..., Any]]) -> list[Workflow[..., Any]]:
    """The workflows that these name, and those that those name, and so on."""
    found: dict[int, Workflow[..., Any]] = {}
    waiting = list(workflows)
    while waiting:
        for workflow in _named_by(waiting.pop().definition.function):
            if id(workflow) not in found:
                found[id(workflow)] = workflow
                waiting.append(workflow)
    return list(found.values())


def _named_by(function: Callable[..., Any]) -> Iterator[Workflow[..., Any]]:
    try:
        closed = getclosurevars(function).nonlocals.values()
        code, known = function.__code__, function.__globals__
    except (AttributeError, TypeError, ValueError):
        return  # not a plain function: its children have to be listed
    names = set(_names(code))
    values = [*closed, *(known[name] for name in names if name in known)]
    for value in values:
        if isinstance(value, Workflow):
            yield value
        elif isinstance(value, ModuleType):
            inside = (vars(value).get(name) for name in names)
            yield from (found for found in inside if isinstance(found, Workflow))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
