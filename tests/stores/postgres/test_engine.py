"""The corpus of tiny workflows on PostgreSQL: undisturbed, and with a process that dies."""

from __future__ import annotations

import pytest

from outlast.ports import Store
from outlast.testing.virtual_clock import VirtualClock
from tests.corpus.case import RUN, Case, lines, told
from tests.corpus.every import CASES
from tests.corpus.stage import play
from tests.corpus.test_crashes import check, places
from tests.stores.postgres.places import FreshStore

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]


def on_postgres(clock: VirtualClock) -> Store:
    """A new store on the server."""
    return FreshStore(clock=clock)


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "I15", "I16", "I18", "I19", "I20", "I21", "I24")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_case(case: Case) -> None:
    """A workflow ends with its outcome and its history; when its process dies at some call of the
    store, another goes on, and it ends the same way."""
    calm = await play(case, on_postgres)
    assert calm.outcome == case.outcome
    assert told(calm.histories[RUN]) == lines(case.history)
    assert calm.violations == []
    for doom in places(calm, sample=1):
        await check(case, calm, on_postgres, doom)
