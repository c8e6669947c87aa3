"""The app that a worker runs: all workflows of the project, on the database of the settings."""

from __future__ import annotations

from typing import Any

from outlast.app import App
from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.discovery import found_here
from outlast.contrib.django.threads import StepThreads
from outlast.ports.clock import Clock
from outlast.ports.store import Store


def app(store: str | Store | None = None, *, clock: Clock | None = None, **options: Any) -> App:
    """An `outlast.App` with the project's workflows, queues and schedules, not open yet. `store`
    is another one than that of the settings, for those who know why."""
    settings = read_settings()
    found = found_here(settings)
    given: dict[str, Any] = {
        "workflows": found.workflows,
        "steps": found.steps,
        "schedules": found.schedules,
        "queues": settings.queues,
        "codec": settings.codec,
        "lease": settings.lease,
        "concurrency": settings.concurrency,
        "threads": StepThreads(),
        **options,
    }
    return App(store or f"django:{settings.database}", clock=clock, **given)
