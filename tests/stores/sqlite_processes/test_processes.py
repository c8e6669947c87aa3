"""Four processes on one SQLite file. The same, larger: `./dev prove processes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.sqlite_processes.claiming import claim_runs, take_tasks
from tests.stores.sqlite_processes.killing import write_and_kill


@pytest.mark.proves("S-12", "S-17", "I5")
def test_no_run_is_claimed_by_two_processes(tmp_path: Path) -> None:
    """Of 200 runs claimed in bulk by four processes at once, each goes to one of them."""
    claims = claim_runs(str(tmp_path / "store.db"), items=200, claimers=4)
    assert claims.problems() == []


@pytest.mark.proves("M-12", "S-12", "S-17", "C-10")
def test_no_task_is_taken_by_two_processes(tmp_path: Path) -> None:
    """Of 200 tasks taken by four processes at once, each goes to one of them."""
    claims = take_tasks(str(tmp_path / "queue.db"), items=200, claimers=4)
    assert claims.problems() == []


@pytest.mark.proves("R-22", "K-08", "I1", "I3", "I4", "I5", "I6", "I12", "I13")
def test_nothing_acknowledged_is_lost_when_writers_are_killed(tmp_path: Path) -> None:
    """After 600 commits under `kill -9` of random writers the file is sound, histories have no
    gaps, nothing acknowledged is missing, and nothing is there that nobody wrote."""
    outcome = write_and_kill(tmp_path, commits=600, writers=4, runs=16, between=(30, 90), seed=1)
    assert outcome.violations == []
    assert outcome.acked >= 600
    assert outcome.kills >= 8
