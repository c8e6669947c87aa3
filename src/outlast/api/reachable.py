"""Which workflows a workflow may start as children: those that its code names.

An app that has a parent's code has its children's too, so they need not be listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import getclosurevars
from types import CodeType, ModuleType
from typing import Any

from outlast.api.declaring import Workflow


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
