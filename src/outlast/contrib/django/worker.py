"""The app that a worker runs: all workflows of the project, on the database of the settings.

The log of Django's SQLite file: kept short by whoever writes, worker or not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.conf import settings as django_settings

from outlast.app import App
from outlast.contrib.django.conf import Settings, read_settings
from outlast.contrib.django.discovery import found_here
from outlast.contrib.django.threads import StepThreads
from outlast.decorators import Workflow
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.sqlite.wal import WalCheckpointer


def app(store: str | Store | None = None, *, clock: Clock | None = None, **options: Any) -> App:
    """An `outlast.App` with the project's workflows, queues and schedules, not open yet. `store`
    is another one than that of the settings, for those who know why."""
    settings = read_settings()
    found = found_here(settings)
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
    """The workflow of `django.tasks` and its queues, if the project uses them with us."""
    if not getattr(django_settings, "TASKS", None):
        return (), ()
    from outlast.contrib.django.tasks import django_task, queues_of_tasks

    queues = queues_of_tasks()
    return ((django_task,) if queues else ()), queues


def _names(settings: Settings) -> set[str]:
    return {one if isinstance(one, str) else one.queue for one in settings.queues}


def keep(connection: Any) -> None:
    """See to the log of a connection that has just been made."""
    keeper = _keeper(_path(connection))
    keeper.take_over(connection.connection)
    wrappers = connection.execute_wrappers  # they outlive the driver's connection
    wrappers[:] = [one for one in wrappers if not isinstance(one, _Look)]
    wrappers.append(_Look(keeper))


class _Look:
    """Before what begins a transaction, or is one, the log is looked at."""

    def __init__(self, keeper: WalCheckpointer) -> None:
        self._keeper = keeper

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if not context["connection"].connection.in_transaction and self._keeper.is_due():
            self._keeper.checkpoint()
        return execute(sql, params, many, context)


def _path(connection: Any) -> str:
    rows = connection.connection.execute("PRAGMA database_list").fetchall()
    return str(next(file for _, name, file in rows if name == "main"))


@lru_cache
def _keeper(path: str) -> WalCheckpointer:
    return WalCheckpointer(path)
