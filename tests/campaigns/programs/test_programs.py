"""Random programs keep their promises, whatever goes wrong: the campaign in small.

`./dev prove programs` runs them by the hundred thousand. What it finds is kept in `found`.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings

from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.clock import SteadyClock
from outlast.stores.memory import MemoryStore
from tests.campaigns.programs.found import FOUND
from tests.campaigns.programs.judging import in_files, judge, stores
from tests.campaigns.programs.program import Case, Child, Fault, Gather, Step
from tests.campaigns.programs.rendering import as_data, as_python
from tests.campaigns.programs.shrinking import smallest
from tests.campaigns.programs.strategies import case_of, cases

MEMORY, SQLITE = 300, 40
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Code that is evicted leaves coroutines that were never awaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@settings(max_examples=MEMORY, derandomize=True, suppress_health_check=SLOW)
@given(case=cases())
def test_a_random_program_keeps_its_promises(case: Case) -> None:
    """Steps, gathers, maps, children, scopes, loops, signals, updates and lives, with faults and with
    acts from outside: the model accepts what is observed."""
    found, _ = judge(case)
    note(as_python(case))
    note(as_data(case))
    assert found == []


@settings(max_examples=SQLITE, derandomize=True, suppress_health_check=SLOW)
@given(case=cases())
def test_a_random_program_keeps_its_promises_on_sqlite(case: Case) -> None:
    """The same in a file."""
    with stores("sqlite") as make:
        found, _ = judge(case, make=make)
    note(as_python(case))
    note(as_data(case))
    assert found == []


@pytest.mark.parametrize("name", FOUND)
def test_a_program_that_once_failed(name: str, tmp_path: Path) -> None:
    """What the campaign has found is mended, in memory and in a file."""
    assert judge(FOUND[name])[0] == []
    assert judge(FOUND[name], make=in_files(tmp_path))[0] == []


class ReadsSlowly(MemoryStore):
    """Lists its runs page by page: one that begins meanwhile may be missing, one that ended is shown so."""

    async def find_all(self, query: RunQuery, **options: Any) -> AsyncIterator[Run]:
        ids = [run.id async for run in super().find_all(query, **options)]
        for _ in range(200):
            await asyncio.sleep(0)
        for id in ids:
            if (run := await self.find_one(id)) is not None:
                yield run


def test_a_run_that_begins_while_the_runs_are_listed_is_awaited() -> None:
    """The campaign ends a case when a list of the runs that nothing has changed meanwhile shows none open."""
    outlives = Child((Step(seconds=12),), abandon=True, wait="never")
    found, evidence = judge(
        Case((outlives,), faults=(Fault("dies before", at=2, any_call=True),)),
        make=lambda clock: ReadsSlowly(clock=SteadyClock(clock)),
    )
    assert found == []
    assert evidence is not None
    assert [run.status for run in evidence.runs.values()] == ["completed", "completed"]


def test_a_case_goes_the_same_way_every_time() -> None:
    """What is observed of a seed is the same to the letter, so that a failure can be repeated."""
    for seed in range(10):
        first, second = (judge(case_of(seed), seed)[1] for _ in range(2))
        assert first is not None
        assert second is not None
        assert first.ledger.bodies == second.ledger.bodies
        assert first.ledger.recorded == second.ledger.recorded
        assert first.ledger.told == second.ledger.told


def test_what_fails_is_made_small() -> None:
    """The smallest program with a child has a child and little else."""

    def has_child(case: Case) -> bool:
        return any(isinstance(node, Child) for node in case.body)

    seed = next(seed for seed in range(1000) if has_child(case_of(seed)))
    assert smallest(case_of(seed), has_child) == Case((Child(()),))


def test_a_case_is_shown_as_python_and_as_data() -> None:
    """The data makes the same case again."""
    case = Case((Gather(((Step(seconds=1, undo="ok"),), (Child((Step(),)),))),), workers=2)
    assert eval(as_data(case)) == case
    assert as_python(case).splitlines() == [
        "# 2 workers",
        "@outlast.workflow",
        "async def program():",
        "    await asyncio.gather(",
        "        async:",
        "            await step(seconds=1, undo='ok')",
        "        async:",
        "            async child:",
        "                await step()",
        "    )",
    ]
