"""`django.tasks` on outlast: enqueued with a transaction, done by a worker, read by anybody."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings
from django.utils import timezone

from outlast import QueuePolicy
from outlast.contrib.django import runs
from outlast.contrib.django.models import Run
from outlast.contrib.django.tasks import TaskResultDoesNotExist, TaskResultStatus
from outlast.contrib.django.testing import run_all
from tests.unit.contrib.django.places import use
from tests.unit.contrib.django.shop.tasks import add, done, fall, tell
from tests.unit.contrib.django.shop.workflows import doubled

TASKS = {
    "default": {
        "BACKEND": "outlast.contrib.django.tasks.OutlastBackend",
        "QUEUES": ["default", "mail"],
    }
}


@pytest.fixture(autouse=True)
def backend(alias: str) -> Iterator[None]:
    """The project's tasks are ours."""
    done.clear()
    with override_settings(TASKS=TASKS):
        yield


def test_a_task_is_done_and_its_result_is_read() -> None:
    """From waiting to done, with its times."""
    result = add.enqueue(2, other=3)
    assert result.status == TaskResultStatus.READY
    assert result.started_at is None
    run_all()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == 5
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert add.get_result(result.id).attempts == 1


def test_an_async_task_with_context() -> None:
    """It knows which attempt it is."""
    result = tell.enqueue("hello")
    run_all()
    result.refresh()
    assert result.return_value == ["hello", 1]


def test_a_task_that_raises() -> None:
    """The class of the error and where it came from can be read, and the run has failed."""
    result = fall.enqueue()
    run_all()
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class is LookupError
    assert "there is nothing" in result.errors[0].traceback
    assert Run.objects.get().status == "failed"


def test_a_rollback_takes_a_task_back(alias: str) -> None:
    """It was never enqueued."""
    with transaction.atomic(using=alias):
        add.enqueue(1)
        transaction.set_rollback(True, using=alias)
    run_all()
    assert done == []


def test_the_larger_priority_goes_first(alias: str) -> None:
    """Among those that wait in a queue."""
    for priority in (-5, 100, 0):
        add.using(priority=priority).enqueue(priority)
    with use(alias, QUEUES=[QueuePolicy(queue="default", concurrency=1)]):
        run_all()
    assert done == [100, 0, -5]


def test_a_deferred_task_waits_for_its_time() -> None:
    """Until then it is ready, and not done."""
    result = add.using(run_after=timezone.now() + timedelta(days=1), queue_name="mail").enqueue(7)
    run_all(through_time=False)
    result.refresh()
    assert result.status == TaskResultStatus.READY
    run_all()
    result.refresh()
    assert result.return_value == 8


def test_bad_input() -> None:
    """What has no JSON form, a queue that is not there, a result of something else."""
    with pytest.raises(TypeError):
        add.enqueue(object())
    with pytest.raises(Exception, match="not valid"):
        add.using(queue_name="nowhere")
    runs.start(doubled(1), id="no-task")
    unknown: Any = ["no-task", "nobody", ""]
    for result_id in unknown:
        with pytest.raises(TaskResultDoesNotExist):
            add.get_result(result_id)
