"""The corpus of tiny workflows on Django's databases: undisturbed, and with a process that dies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outlast.contrib.django.postgres import DjangoPostgresStore
from outlast.contrib.django.store import DjangoSqliteStore
from outlast.ports import Store
from outlast.testing.virtual_clock import VirtualClock
from tests.corpus.case import RUN, Case, lines, told
from tests.corpus.every import CASES
from tests.corpus.stage import play
from tests.corpus.test_crashes import check, places
from tests.unit.contrib.django.places import DATABASES, POSTGRES, made, use, wipe_and_leave

pytestmark = pytest.mark.timeout(300)

EACH = 4
"""All cases are played undisturbed; so many apart, one with a process that dies."""


class FreshPostgres(DjangoPostgresStore):
    """Empty when it is first opened."""

    is_fresh = False

    async def open(self) -> None:
        if not self.is_fresh:
            self.is_fresh = True
            await self._source.threads.run(wipe_and_leave, self.alias)
        await super().open()


class FreshSqlite(DjangoSqliteStore):
    """Empty when it is first opened."""

    is_fresh = False

    async def open(self) -> None:
        if not self.is_fresh:
            self.is_fresh = True
            await self._threads.run(wipe_and_leave, self.alias)
        await super().open()


@pytest.fixture(params=DATABASES, scope="module")
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with all tables."""
    alias = made(request.param)
    with use(alias):
        yield alias


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "I15", "I16", "I18", "I19", "I20", "I21", "I24")
@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_case(case: Case, place: str) -> None:
    """A workflow ends with its outcome and its history; for some, when its process dies at some call of
    the store, another goes on, and it ends the same way."""

    def make(clock: VirtualClock) -> Store:
        if place == POSTGRES:
            return FreshPostgres(place, notify=False, clock=clock)
        return FreshSqlite(place, clock=clock)

    calm = await play(case, make)
    assert calm.outcome == case.outcome
    assert told(calm.histories[RUN]) == lines(case.history)
    assert calm.violations == []
    for doom in places(calm, sample=1) if CASES.index(case) % EACH == 0 else ():
        await check(case, calm, make, doom)
