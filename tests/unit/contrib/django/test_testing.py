"""What a project's own tests do: runs in a TestCase, in a TransactionTestCase, and in async tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from outlast.contrib.django import runs, testing
from outlast.contrib.django.models import Run
from outlast.contrib.django.testing import RunsMixin
from outlast.engine.runner.claimer import Claimer
from outlast.errors import Closed, StoreFault
from tests.unit.contrib.django.places import SQLITE, made, wipe
from tests.unit.contrib.django.shop.models import Payment
from tests.unit.contrib.django.shop.workflows import bought, doubled, greeted, patient, refused


class RunsInATestCase(RunsMixin, TestCase):
    """Nothing of it is ever committed."""

    @classmethod
    def setUpClass(cls) -> None:
        wipe(made(SQLITE))
        super().setUpClass()

    def test_a_run_is_worked_off(self) -> None:
        """Steps run in the transaction of the test, transactional ones too."""
        runs.start(doubled(4), id="a")
        runs.start(bought("o", 7), id="b")
        runs.start(refused(3), id="c")
        self.run_all()
        assert runs.get("a").result() == 8
        assert Payment.objects.get().amount == 7
        assert Run.objects.get(id="c").status == "failed"

    def test_time_is_not_waited_for(self) -> None:
        """A month passes, unless it is not to."""
        runs.start(patient(), id="p")
        self.run_all(through_time=False)
        assert Run.objects.get().status == "waiting"
        self.run_all()
        assert Run.objects.get().status == "completed"

    def test_without_runs_it_begins_at_the_present(self) -> None:
        """Time that has passed for runs that are gone is not behind those of the next test, which would be
        due at once; in one test it never goes back."""
        runs.start(patient(), id="p")
        self.run_all()
        later = Run.objects.get().updated_at
        runs.start(greeted(), id="g")
        self.run_all()
        assert Run.objects.get(id="g").updated_at >= later > datetime.now(UTC)
        testing.delete_all_runs()
        runs.start(patient(), id="q")
        self.run_all(through_time=False)
        assert Run.objects.get().updated_at < later

    def test_a_worker_that_cannot_claim_is_no_worker(self) -> None:
        """`run_all` raises what hinders its worker: a test that goes on would see runs that nothing drives."""
        runs.start(doubled(4), id="a")
        for error in (StoreFault("broken"), Closed("closed"), RuntimeError("unforeseen")):

            async def fails(*_: Any, error: Exception = error, **__: Any) -> int:
                raise error

            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(Claimer, "claim", fails)
                with pytest.raises(type(error), match=str(error)):
                    self.run_all()
        self.run_all()
        assert runs.get("a").result() == 8

    def test_what_waits_for_somebody_waits(self) -> None:
        """Until it is told."""
        runs.start(greeted(), id="g")
        self.run_all()
        assert Run.objects.get().wait_kind == "signal"
        runs.get("g").signal("name", "you")
        self.run_all()
        assert Run.objects.get().result == "hello you"

    async def test_async_tests_have_the_same(self) -> None:
        """In the thread that has their connection."""
        await runs.astart(doubled(4), id="a")
        await self.arun_all()
        assert await runs.get("a").aresult() == 8

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
            runs.start(bought("o", 7), id="b")
        self.run_all()
        assert Payment.objects.count() == 1

    def test_another_one(self) -> None:
        """It finds nothing of the first."""
        self.test_a_run_after_the_commit()
