"""The app that a worker runs: all workflows of the project, on the database of the settings."""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings

from outlast.app import App
from outlast.contrib.django.conf import Settings, discover, read_settings
from outlast.contrib.django.threads import StepThreads
from outlast.decorators import Workflow
from outlast.ports.clock import Clock
from outlast.ports.store import Store


def app(store: str | Store | None = None, *, clock: Clock | None = None, **options: Any) -> App:
    """An `outlast.App` with the project's workflows, queues and schedules, not yet open. `store` replaces the
    one of the settings."""
    settings = read_settings()
    found = discover(settings)
    tasks, queues = _tasks()
    given: dict[str, Any] = {
        "workflows": (*found.workflows, *tasks),
        "steps": found.steps,
        "schedules": found.schedules,
        "queues": (*settings.queues, *(set(queues) - _names(settings))),
        "codec": settings.codec,
        "lease": settings.lease,
        "concurrency": settings.concurrency,
        "threads": StepThreads(),
        **options,
    }
    return App(store or f"django:{settings.database}", clock=clock, **given)


def _tasks() -> tuple[tuple[Workflow[..., Any], ...], tuple[str, ...]]:
    """The workflow of `django.tasks` and its queues, if the project uses the backend."""
    if not getattr(django_settings, "TASKS", None):
        return (), ()
    from outlast.contrib.django.tasks import django_task, queues_of_tasks

    queues = queues_of_tasks()
    return ((django_task,) if queues else ()), queues


def _names(settings: Settings) -> set[str]:
    return {one if isinstance(one, str) else one.queue for one in settings.queues}
