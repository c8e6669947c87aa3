"""The setting `OUTLAST`, a dict::

    OUTLAST = {
        "DATABASE": "default",     # the alias in DATABASES; runs are part of its transactions
        "SCHEMA": "public",        # the schema of the tables (PostgreSQL)
        "WORKFLOWS": ["shop.workflows"],  # modules; without it, `workflows` of every installed app
        "QUEUES": ["mail"],        # queues that the worker serves: names, or `outlast.QueuePolicy`s
        "CONCURRENCY": 100,        # runs at once, and queued steps at once, of one worker
        "LEASE": 30.0,             # seconds after which a worker without heartbeats counts as crashed
        "CODEC": "shop.codecs.codec",     # a codec, or a function that returns one
    }

All keys are optional. The setting is read at each use, so that `override_settings` works.

`discover` finds the workflows, queued steps and schedules of a project: in the modules that the settings name,
by default in ``workflows.py`` of every installed app.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.module_loading import import_string, module_has_submodule
from msgspec import Struct

from outlast.codecs import JsonCodec
from outlast.decorators import Step, Workflow
from outlast.engine.runner.engine import LEASE_S
from outlast.errors import InvalidValue, OutlastError
from outlast.model.claim import check_ttl
from outlast.model.ids import check_name
from outlast.model.queue_policy import QueuePolicy, check_policy
from outlast.ports.codec import Codec
from outlast.schedules import Schedule


class Settings(Struct, frozen=True, kw_only=True):
    """`OUTLAST`, parsed."""

    database: str = DEFAULT_DB_ALIAS
    schema: str = "public"
    workflows: tuple[str, ...] | None = None
    queues: tuple[str | QueuePolicy, ...] = ()
    concurrency: int | None = None
    lease: float = LEASE_S
    codec: Codec


def read_settings() -> Settings:
    """The setting, validated; `InvalidValue` says what is wrong with it."""
    given = getattr(django_settings, "OUTLAST", {})
    if not isinstance(given, Mapping):
        raise InvalidValue(f"OUTLAST is a {type(given).__name__}: make it a dict, or leave it out")
    unknown = [key for key in given if key not in _READ]
    if unknown:
        raise InvalidValue(
            f"OUTLAST has the unknown key {unknown[0]!r}: the keys are {', '.join(_READ)}"
        )
    values: dict[str, Any] = {"codec": JsonCodec()}
    for key, value in given.items():
        try:
            values[key.lower()] = _READ[key](value)
        except (OutlastError, TypeError) as error:
            raise InvalidValue(f"OUTLAST[{key!r}] = {value!r} is not possible: {error}") from error
    return Settings(**values)


def _alias(value: object) -> str:
    if value not in connections.settings:
        raise InvalidValue(f"DATABASES has {', '.join(connections.settings)}")
    return str(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue("write a name")
    return value


def _modules(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidValue("write a list of modules")
    return tuple(map(_text, value))


def _queues(value: object) -> tuple[str | QueuePolicy, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidValue("write a list of names or of QueuePolicy objects")
    found = tuple(value)
    for one in found:
        if isinstance(one, QueuePolicy):
            check_policy(one)
        else:
            check_name(_text(one), "queue")
    return found


def _concurrency(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InvalidValue("write a whole number, 1 or more")
    return value


def _lease(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue("write a number of seconds")
    check_ttl(float(value))
    return float(value)


def _codec(value: object) -> Codec:
    if isinstance(value, str):
        try:
            value = import_string(value)
        except ImportError as error:
            raise InvalidValue(f"it cannot be imported ({error})") from error
    if callable(value):
        value = value()
    if not hasattr(value, "encode") or not hasattr(value, "decode"):
        raise InvalidValue("write a codec, or the dotted path of one")
    return value  # type: ignore[return-value]


_READ: dict[str, Callable[[Any], Any]] = {
    "DATABASE": _alias,
    "SCHEMA": _text,
    "WORKFLOWS": _modules,
    "QUEUES": _queues,
    "CONCURRENCY": _concurrency,
    "LEASE": _lease,
    "CODEC": _codec,
}


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
        id(value): value for module in _named_modules(named) for value in vars(module).values()
    }
    every = list(values.values())
    return Discovered(
        tuple(one for one in every if isinstance(one, Workflow)),
        tuple(one for one in every if isinstance(one, Step) and one.definition.queue is not None),
        tuple(one for one in every if isinstance(one, Schedule)),
    )


def _named_modules(named: tuple[str, ...] | None) -> list[ModuleType]:
    if named is not None:
        return [importlib.import_module(name) for name in named]
    return [
        importlib.import_module(f"{app.name}.{MODULE}")
        for app in apps.get_app_configs()
        if app.module is not None and module_has_submodule(app.module, MODULE)
    ]
