"""A backend for `django.tasks`, and the workflow with which a worker executes its tasks::

    TASKS = {"default": {"BACKEND": "outlast.contrib.django.tasks.OutlastBackend",
                         "QUEUES": ["default", "mail"]}}

A task is a run of one workflow, in the queue of the task, with its priority and `run_after`. It is enqueued
in the caller's transaction and executed by ``manage.py outlast worker``. Any process can read its result
from the run, until the run is deleted. If a worker crashes, the task is executed again. Django 6 has this
interface; for 5.2 the package `django-tasks` has the same.
"""

from __future__ import annotations

import json
import traceback
from typing import Any

from django.conf import settings as django_settings
from django.utils.module_loading import import_string

import outlast
from outlast.client import RunView
from outlast.contrib.django.client import runs
from outlast.errors import InvalidValue, NotFound, OutlastError, UsageError
from outlast.model.event import Event, EventType
from outlast.model.ids import new_id
from outlast.model.queue_policy import QueueOptions
from outlast.model.run import Status

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
except ModuleNotFoundError:  # Django 5.2
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import Task, TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started

__all__ = ["OutlastBackend", "TaskResultDoesNotExist", "TaskResultStatus"]

BACKEND = f"{__name__}.OutlastBackend"


class OutlastBackend(BaseTaskBackend):
    """Tasks as runs. Supports all features: run_after, async tasks, results, priorities."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Start a run for the task, in the caller's transaction."""
        self.validate_task(task)
        given = _plain({"args": list(args), "kwargs": dict(kwargs)})
        run = runs.start(
            django_task(task.module_path, given["args"], given["kwargs"], self.alias),
            id=f"task-{new_id()}",
            attributes={"task": task.module_path},
            # In outlast the smallest number is served first.
            queue=QueueOptions(task.queue_name, priority=-task.priority, at=task.run_after),
        )
        result = self._result(run.status(), [], task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The status and result of a task."""
        try:
            handle = runs.get(result_id)
            run = handle.status()
            if run.workflow != django_task.name:
                raise TaskResultDoesNotExist(result_id)
            return self._result(run, handle.history())
        except (NotFound, UsageError) as error:
            raise TaskResultDoesNotExist(result_id) from error

    def _result(self, run: RunView, history: list[Event], task: Any = None) -> Any:
        given = run.input
        tries = [event for event in history if event.type == EventType.STEP_STARTED]
        result = TaskResult(
            task=task or _task(given["path"]).using(queue_name=run.queue, priority=-run.priority),
            id=run.id,
            status=_status(run, tries),
            enqueued_at=run.created_at,
            started_at=tries[0].timestamp if tries else None,
            last_attempted_at=tries[-1].timestamp if tries else None,
            finished_at=run.ended_at,
            args=given["args"],
            kwargs=given["kwargs"],
            backend=self.alias,
            errors=_errors(run),
            worker_ids=[f"claim-{event.token}" for event in tries],
        )
        if run.status is Status.COMPLETED:
            object.__setattr__(result, "_return_value", run.result)
        return result


@outlast.step
def do_task(path: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> dict[str, Any]:
    """Call the task's function. An exception is returned as data, because Django wants its class."""
    task = _task(path)
    own = task.using(backend=backend).get_backend()
    before = own.get_result(outlast.step_info().run_id)
    task_started.send(sender=type(own), task_result=before)
    given = [TaskContext(task_result=before)] if task.takes_context else []
    answer: dict[str, Any]
    try:
        answer = {"value": _plain(task.call(*given, *args, **kwargs))}
        status = TaskResultStatus.SUCCESSFUL
    except Exception as error:  # noqa: BLE001 - whatever a task raises is its outcome
        kind, status = type(error), TaskResultStatus.FAILED
        answer = {
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "message": f"{kind.__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
        }
    object.__setattr__(before, "status", status)
    task_finished.send(sender=type(own), task_result=before)
    return answer


@outlast.workflow(name="django.task")
async def django_task(path: str, args: list[Any], kwargs: dict[str, Any], backend: str) -> Any:
    """One Django task."""
    answer = await do_task(path, args, kwargs, backend)
    if "value" in answer:
        return answer["value"]
    outlast.publish(error=answer)
    raise TaskFailed(answer["message"])


class TaskFailed(Exception):
    """A task has raised an exception."""


def queues_of_tasks() -> tuple[str, ...]:
    """The queues of all backends of this class, for the worker; empty if `TASKS` has none."""
    backends = getattr(django_settings, "TASKS", {})
    return tuple(
        queue
        for options in backends.values()
        if options.get("BACKEND") == BACKEND
        for queue in options.get("QUEUES", ["default"])
    )


def _task(path: str) -> Any:
    task = import_string(path)
    if not isinstance(task, Task):
        raise InvalidValue(f"{path} is not a task: decorate the function with @task")
    return task


def _plain(value: Any) -> Any:
    """The value after a round trip through JSON: a tuple becomes a list. TypeError if it has no JSON form."""
    return json.loads(json.dumps(value))


def _status(run: RunView, tries: list[Event]) -> Any:
    if run.status is Status.COMPLETED:
        return TaskResultStatus.SUCCESSFUL
    if run.status.terminal:
        return TaskResultStatus.FAILED
    return TaskResultStatus.RUNNING if tries else TaskResultStatus.READY


def _errors(run: RunView) -> list[Any]:
    if run.status not in (Status.FAILED, Status.CANCELLED):
        return []
    try:
        error = run.published["error"]
        return [TaskError(exception_class_path=error["class"], traceback=error["traceback"])]
    except KeyError:
        path = f"{OutlastError.__module__}.{OutlastError.__qualname__}"
        return [TaskError(exception_class_path=path, traceback=run.error or "")]
