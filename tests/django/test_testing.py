"""What a project's own tests do: runs in a TestCase, in a TransactionTestCase, and in async tests."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.test import TestCase, TransactionTestCase

from outlast.contrib.django import runs, testing
from outlast.contrib.django.models import Run
from outlast.contrib.django.testing import RunsMixin
from tests.django.places import SQLITE, made, wipe
from tests.django.shop.models import Payment
from tests.django.shop.workflows import bought, doubled, greeted, patient, refused


class RunsInATestCase(RunsMixin, TestCase):
    """Nothing of it is ever committed."""

    @classmethod
    def setUpClass(cls) -> None:
        wipe(made(SQLITE))
        super().setUpClass()

    def test_a_run_is_worked_off(self) -> None:
        """Steps run in the transaction of the test, transactional ones too."""
        runs.start(doubled, 4, id="a")
        runs.start(bought, "o", 7, id="b")
        runs.start(refused, 3, id="c")
        self.run_all()
        assert runs.result("a") == 8
        assert Payment.objects.get().amount == 7
        assert Run.objects.get(id="c").status == "failed"

    def test_time_is_not_waited_for(self) -> None:
        """A month passes, unless it is not to."""
        runs.start(patient, id="p")
        self.run_all(through_time=False)
        assert Run.objects.get().status == "waiting"
        self.run_all()
        assert Run.objects.get().status == "completed"

    def test_the_next_test_begins_at_the_present(self) -> None:
        """The month that passes in one test is not behind the next one, whose runs would be due at once."""
        runs.start(patient, id="p")
        self.run_all()
        assert testing._last.moment > datetime.now(UTC)
        self.doCleanups()
        assert testing._last.moment < datetime.now(UTC)

    def test_what_waits_for_somebody_waits(self) -> None:
        """Until it is told."""
        runs.start(greeted, id="g")
        self.run_all()
        assert Run.objects.get().wait_kind == "signal"
        runs.signal("g", "name", "you")
        self.run_all()
        assert Run.objects.get().result == "hello you"

    async def test_async_tests_have_the_same(self) -> None:
        """In the thread that has their connection."""
        await runs.astart(doubled, 4, id="a")
        await self.arun_all()
        assert await runs.aresult("a") == 8

    def test_each_test_begins_without_runs(self) -> None:
        """They went with the transactions of the others."""
        assert not Run.objects.exists()


class RunsInATransactionTestCase(RunsMixin, TransactionTestCase):
    """What it commits is there until the end of the test."""

    @classmethod
    def setUpClass(cls) -> None:
        wipe(made(SQLITE))
        super().setUpClass()

    def _fixture_teardown(self) -> None:
        """Leave the tables of other apps alone: this is no database of Django's test runner."""
        Payment.objects.all().delete()

    def test_a_run_after_the_commit(self) -> None:
        """As a view would begin it."""
        assert not Run.objects.exists()
        with transaction.atomic():
            runs.start(bought, "o", 7, id="b")
        self.run_all()
        assert Payment.objects.count() == 1

    def test_another_one(self) -> None:
        """It finds nothing of the first."""
        self.test_a_run_after_the_commit()
