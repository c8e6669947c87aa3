"""The corpus, with a process that dies: at every call of the store, before it, after it, or told an
error although it was done. Another process goes on, and it ends as if nothing had happened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from outlast.testing.crash_sweep import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.testing.crashable_process import Crash
from outlast.testkit.faults import Fault, Nth
from tests.corpus.case import RUN, Case, matching, without_repeats
from tests.corpus.every import BY_ID, CASES, MakeStore, in_files, in_memory
from tests.corpus.stage import CrashPoint, Ending, play

LARGE, SAMPLE = 150, 12
"""A case with more events or attempts than this is crashed at a sample of the places."""

SWEPT_IN_FILES = {
    "begins_anew",
    "has_a_child",
    "hears_in_order",
    "is_paused",
    "maps",
    "one_after_the_other",
    "tries_again",
    "undoes",
}
"""One for each part of a commit: a new life, a start, an inbox, a pause, results, steps, a wait."""

WRITES = ("commit", "claim_runs", "renew", "release", "send")


def places(calm: Ending, sample: int | None = None) -> list[CrashPoint]:
    """Every call with everything that can become of it. Whether a process dies before or after it
    has read makes no difference to anybody."""
    found = [
        CrashPoint(number, crash)
        for number, site in enumerate(calm.store_calls, 1)
        for crash in Crash
        if crash is not Crash.AFTER or site.startswith(WRITES)
    ]
    if sample is None and len(calm.histories[RUN]) + len(calm.executions) > LARGE:
        sample = SAMPLE
    if sample is None or sample >= len(found):
        return found
    return sorted(random.Random(7).sample(found, sample))


async def check(
    case: Case,
    calm: Ending,
    make_store: MakeStore,
    crash_point: CrashPoint,
    residency: ResidencyPolicy = DEFAULT_RESIDENCY,
) -> None:
    """Crash once, and compare."""
    crashed = await play(case, make_store, crash_point, residency=residency)
    place = f"{crashed.crashed_at or crash_point}"
    assert crashed.violations == [], place
    if crashed.outcome in case.after_crash:
        return
    assert crashed.outcome == case.outcome, place
    assert shapes(case, crashed) == shapes(case, calm), place


def shapes(case: Case, ending: Ending) -> dict[str, object]:
    """What has to be the same: how every run ended, what it shows, and its history."""
    return {
        id: (
            run.status,
            run.ctx,
            run.attributes,
            matching(case, without_repeats(ending.histories[id])) if id == RUN else
            sorted(without_repeats(ending.histories[id])),
        )
        for id, run in ending.runs.items()
    }  # fmt: skip


@pytest.mark.proves("I7", "I8", "I9", "I12", "I14", "I16", "I20", "I21", "I24", "R-16", "S-16")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_crash_changes_nothing(case: Case) -> None:
    """Wherever the process dies, the outcome is the same, the history is the same up to attempts,
    and no step that is recorded runs again."""
    calm = await play(case, in_memory)
    for crash_point in places(calm):
        await check(case, calm, in_memory, crash_point)


@pytest.mark.proves("I7", "I8", "I12", "I14", "R-22", "S-16")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_crash_changes_nothing_on_sqlite(case: Case, tmp_path: Path) -> None:
    """The same in a file: a few cases at many places, all others at two."""
    make_store = in_files(tmp_path)
    calm = await play(case, make_store)
    for crash_point in places(calm, sample=24 if case.id in SWEPT_IN_FILES else 2):
        await check(case, calm, make_store, crash_point)


@pytest.mark.proves("I5", "I7", "I12", "I18", "I29", "C-28")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_process_that_slept_past_its_lease_changes_nothing(case: Case) -> None:
    """It wakes up with a commit in its hand when another process has done the work: whatever it
    writes then is refused."""
    calm = await play(case, in_memory)
    commits = [n for n, site in enumerate(calm.store_calls, 1) if site.startswith("commit")]
    for freeze in random.Random(7).sample(commits, min(len(commits), SAMPLE)):
        frozen = await play(case, in_memory, freeze=freeze)
        assert frozen.violations == [], freeze
        if frozen.outcome not in case.after_crash:
            assert frozen.outcome == case.outcome, freeze
            assert shapes(case, frozen) == shapes(case, calm), freeze


@pytest.mark.proves("I3", "I12", "I24", "C-20")
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
async def test_a_fault_changes_nothing(case: Case) -> None:
    """A call that is refused, lost, doubled, late or cancelled costs time at most: the process
    that made it goes on."""
    calm = await play(case, in_memory)
    for fault in Fault:
        number = random.Random(f"{case.id} {fault}").randint(1, len(calm.store_calls))
        shaken = await play(case, in_memory, faults=Nth(number, fault))
        assert shaken.violations == [], (number, fault)
        if shaken.outcome not in case.after_crash:
            assert shaken.outcome == case.outcome, (number, fault)
            assert shapes(case, shaken) == shapes(case, calm), (number, fault)


@pytest.mark.proves("I10")
async def test_a_delicate_step_is_not_repeated() -> None:
    """A step that may run at most once fails if the process died while it may have been running,
    and runs normally if it had not begun."""
    case = BY_ID["launches_once"]
    calm = await play(case, in_memory)
    outcomes = set()
    for crash_point in places(calm):
        crashed = await play(case, in_memory, crash_point)
        assert len(crashed.executions) <= 1, crash_point
        outcomes.add(crashed.outcome)
    assert outcomes == {case.outcome, "Interrupted"}
