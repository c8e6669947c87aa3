"""Which workflows there are: those in the modules that the settings name, or without a word in
``workflows.py`` of every installed app."""

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


class Found(Struct, frozen=True):
    """What an app is made of."""

    workflows: tuple[Workflow[..., Any], ...]
    steps: tuple[Step[..., Any], ...]
    schedules: tuple[Schedule, ...]


def found_here(settings: Settings) -> Found:
    """The workflows, the steps with a queue and the schedules that the modules define or import."""
    return _found(settings.workflows)


@cache
def _found(named: tuple[str, ...] | None) -> Found:
    values: dict[int, Any] = {
        id(value): value for module in _modules(named) for value in vars(module).values()
    }
    every = list(values.values())
    return Found(
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
