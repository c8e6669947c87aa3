"""The corpus with a snapshot at every commit, with an eviction at every commit, and with both: each
tiny workflow ends as it does without, wherever its process dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.testing.crash_sweep import EVICTIONS, HARSH, SNAPSHOTS, ResidencyPolicy
from tests.corpus.case import RUN, Case, lines, told
from tests.corpus.every import CASES, MakeStore, in_files, in_memory
from tests.corpus.stage import play
from tests.corpus.test_corpus import done
from tests.corpus.test_crashes import check, places, shapes
from tests.unit.testing.storm import TOO_LONG

RARE = {"snapshots": SNAPSHOTS, "evictions": EVICTIONS, "both": HARSH}
SAMPLE = 8
"""So many places of each case in each residency: `./dev prove simulation` tries more."""

residencies = pytest.mark.parametrize("residency", RARE.values(), ids=RARE)
SHORT = [case for case in CASES if case.id not in TOO_LONG]
cases = pytest.mark.parametrize("case", SHORT, ids=[case.id for case in SHORT])


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """How to make a new store."""
    return in_memory if request.param == "memory" else in_files(tmp_path)


@residencies
@cases
async def test_a_case_in_any_residency(
    case: Case, residency: ResidencyPolicy, make_store: MakeStore
) -> None:
    """Outcome, histories up to attempts and the number of bodies that ran are the same. A snapshot
    leaves no trace in a history at all."""
    usual = await play(case, in_memory)
    ending = await play(case, make_store, residency=residency)
    assert ending.outcome == case.outcome
    assert shapes(case, ending) == shapes(case, usual)
    assert ending.violations == []
    assert len(ending.executions) == (done(ending) if case.bodies is None else case.bodies)
    if not residency.evicts:
        assert told(ending.histories[RUN]) == lines(case.history)


@pytest.mark.sampled(3)
@residencies
@cases
async def test_a_crash_changes_nothing_in_any_residency(
    case: Case, residency: ResidencyPolicy
) -> None:
    """Neither does a crash at a sample of the calls."""
    usual = await play(case, in_memory)
    calm = await play(case, in_memory, residency=residency)
    for crash_point in places(calm, sample=SAMPLE):
        await check(case, usual, in_memory, crash_point, residency)
