"""`transaction.atomic` and runs: what is started, signalled and enqueued in it is part of it."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from django.db import IntegrityError, connections, transaction

from outlast.contrib.django import runs
from outlast.contrib.django.models import Run
from outlast.errors import RunExists, WorkflowMisuse
from outlast.model import Status, Task
from tests.unit.contrib.django.shop.models import Order
from tests.unit.contrib.django.shop.workflows import doubled, greeted


@pytest.mark.proves("I12")
def test_a_start_is_there_with_the_commit(alias: str) -> None:
    """Order and run are committed together."""
    with transaction.atomic(using=alias):
        Order.objects.using(alias).create(name="o-1")
        handle = runs.start(doubled(7), id="o-1")
        assert handle.status().status is Status.PENDING
    assert runs.get("o-1").status().workflow == "doubled"
    assert Order.objects.using(alias).count() == 1


@pytest.mark.proves("I12", "I25")
def test_a_rollback_takes_everything_back(alias: str) -> None:
    """A start, a signal and a task vanish with it; also those of a savepoint alone."""
    runs.start(greeted(), id="there")

    def all_three(name: str) -> None:
        Order.objects.using(alias).create(name=name)
        runs.start(doubled(1), id=name)
        runs.get("there").signal("name", name)
        assert runs.enqueue("mail", [Task(id=name)]) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        all_three("outer")
    with transaction.atomic(using=alias):
        runs.start(doubled(2), id="kept")
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
            all_three("inner")
    assert set(Run.objects.values_list("id", flat=True)) == {"there", "kept"}
    assert runs.get("there").status().inbox == 0
    assert not Order.objects.using(alias).exists()
    assert runs.enqueue("mail", [Task(id="outer"), Task(id="inner")]) == 2


def test_what_is_refused_leaves_the_transaction_as_it_was(alias: str) -> None:
    """An id that is taken is an error for the caller, who may go on and commit."""
    runs.start(doubled(1), id="taken")
    with transaction.atomic(using=alias):
        Order.objects.using(alias).create(name="before")
        with pytest.raises(RunExists):
            runs.start(doubled(2), id="taken")
        assert runs.start(doubled(1), id="taken").id == "taken"
        Order.objects.using(alias).create(name="after")
    assert Order.objects.using(alias).count() == 2


def test_a_transaction_that_is_broken_takes_no_run(alias: str) -> None:
    """Where Django refuses further statements, so does a start: it could only be lost."""
    Order.objects.using(alias).create(name="twice")
    with transaction.atomic(using=alias):
        runs.start(doubled(1), id="lost")
        with pytest.raises(IntegrityError), transaction.atomic(using=alias, savepoint=False):
            Order.objects.using(alias).create(name="twice")
        with pytest.raises(transaction.TransactionManagementError):
            runs.start(doubled(1), id="too late")
    assert not Run.objects.exists()


def test_waiting_in_a_transaction_is_refused(alias: str) -> None:
    """It would never end: nobody sees the run before the commit."""
    with transaction.atomic(using=alias):
        handle = runs.start(doubled(1))
        with pytest.raises(WorkflowMisuse, match="on_commit"):
            handle.result()
        with pytest.raises(WorkflowMisuse, match="on_commit"):
            handle.update("x")


def test_with_autocommit_off_the_user_commits(alias: str) -> None:
    """`set_autocommit(False)` is a transaction as well."""
    connection = connections[alias]
    connection.set_autocommit(False)
    try:
        runs.start(doubled(1), id="gone")
        connection.rollback()
        runs.start(doubled(1), id="kept")
        connection.commit()
    finally:
        connection.set_autocommit(True)
    assert [run.id for run in Run.objects.all()] == ["kept"]


async def test_async_code_has_the_same(alias: str) -> None:
    """In the thread of `sync_to_async`, with its connection."""
    handle = await runs.astart(greeted(), id="async")
    await handle.asignal("name", "you")
    assert (await runs.get("async").astatus()).inbox == 1
    assert [run.id async for run in Run.objects.all()] == ["async"]

    def rolled_back() -> None:
        with transaction.atomic(using=alias):
            runs.start(doubled(1), id="gone")
            transaction.set_rollback(True, using=alias)

    await sync_to_async(rolled_back)()
    assert await Run.objects.acount() == 1
