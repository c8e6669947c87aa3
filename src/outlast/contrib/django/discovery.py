"""Finds the workflows, queued steps and schedules of a project: in the modules that the settings name, by
default in ``workflows.py`` of every installed app."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import Any

from django.apps import apps
from django.utils.module_loading import module_has_submodule
from msgspec import Struct

from outlast.contrib.django.conf import Settings
from outlast.decorators import Step, Workflow
from outlast.schedules import Schedule

MODULE = "workflows"


class Discovered(Struct, frozen=True):
    """The workflows, queued steps and schedules of a project."""

    workflows: tuple[Workflow[..., Any], ...]
    steps: tuple[Step[..., Any], ...]
    schedules: tuple[Schedule, ...]


def discover(settings: Settings) -> Discovered:
    """Import the modules, and collect what they define or import."""
    return _discover(settings.workflows)


@cache
def _discover(named: tuple[str, ...] | None) -> Discovered:
    values: dict[int, Any] = {
        id(value): value for module in _modules(named) for value in vars(module).values()
    }
    every = list(values.values())
    return Discovered(
        tuple(one for one in every if isinstance(one, Workflow)),
        tuple(one for one in every if isinstance(one, Step) and one.definition.queue is not None),
        tuple(one for one in every if isinstance(one, Schedule)),
    )


def _modules(named: tuple[str, ...] | None) -> list[ModuleType]:
    if named is not None:
        return [importlib.import_module(name) for name in named]
    return [
        importlib.import_module(f"{app.name}.{MODULE}")
        for app in apps.get_app_configs()
        if app.module is not None and module_has_submodule(app.module, MODULE)
    ]
