"""`./dev matrix` and the packages that it fetches, as far as they can be tested without fetching."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools import fetch_packages, matrix
from tools.matrix import Row


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report of its own, and a cache for the logs."""
    monkeypatch.setattr(matrix, "REPORT", tmp_path / "reports" / "versions.json")
    monkeypatch.setattr(matrix, "CACHE", tmp_path)
    return tmp_path / "reports" / "versions.md"


def printing(text: str, code: int = 0) -> list[str]:
    """The command of a test runner that says just this."""
    return [sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"]


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize(
    "said, code, passed, failed, skipped",
    [
        ("12 passed in 1.50s", 0, 12, 0, 0),
        (
            "= 3 failed, 8,4 passed\n1 failed, 840 passed, 5 skipped in 70.01s (0:01:10)",
            1,
            840,
            1,
            5,
        ),
        ("2 passed, 1 error in 0.10s", 1, 2, 1, 0),
    ],
)
def test_counts_are_read_from_the_closing_line(
    said: str, code: int, passed: int, failed: int, skipped: int
) -> None:
    """Passed, failed and skipped are what pytest says last; an error counts as failed."""
    row = matrix._tested(Row("Python 3.14", "Python 3.14.1", "all"), printing(said, code), {})
    assert (row.passed, row.failed, row.skipped, row.problem) == (passed, failed, skipped, "")


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize("said, code", [("no module named pytest", 1), ("5 passed in 1.00s", 3)])
def test_a_run_that_says_nothing_or_fails_without_a_test_is_a_problem(said: str, code: int) -> None:
    """A runner that does not come to its end is never counted as tested."""
    row = matrix._tested(Row("Python 3.14", "Python 3.14.1", "all"), printing(said, code), {})
    assert f"exit {code}" in row.problem


def test_rows_that_were_not_run_stay(report: Path) -> None:
    """A partial run updates its own rows and keeps the others with their dates."""
    matrix._write(Row("Python 3.14", "Python 3.14.1", "all", passed=5, date="2026-01-01"))
    matrix._write(Row("redis", "redis 8.0.6", "tests/redis", passed=7, date="2026-02-01"))
    matrix._write(Row("Python 3.14", "Python 3.14.2", "all", passed=6, date="2026-03-01"))
    text = report.read_text()
    assert "3.14.1" not in text
    assert "| Python 3.14 | Python 3.14.2 | all | 6 | 0 | 0 | 0 | 2026-03-01 |" in text
    assert "| redis | redis 8.0.6 | tests/redis | 7 | 0 | 0 | 0 | 2026-02-01 |" in text


def test_what_could_not_be_tested_is_said(report: Path) -> None:
    """A version that cannot be had is a row with its reason, not an absent one."""
    matrix._write(
        Row("valkey", "", "tests/redis", problem="apt-get is | not here", date="2026-01-01")
    )
    assert "not tested: apt-get is / not here" in report.read_text()


def test_the_exit_code_tells_failures_from_what_could_not_run(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 for a failed test, 2 for a version that could not be tested, 0 otherwise."""
    found: list[Row] = []
    monkeypatch.setattr(matrix, "_rows", lambda options: iter(found))
    for row, code in [
        (Row("a", "1", "all", passed=1), 0),
        (Row("a", "1", "all", problem="no"), 2),
        (Row("a", "1", "all", failed=1), 1),
    ]:
        found[:] = [row]
        assert matrix.main(["--pythons", "3.14"]) == code
    assert json.loads(report.with_suffix(".json").read_text())[0]["failed"] == 1


def test_an_unknown_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Only versions that outlast supports can be asked for."""
    with pytest.raises(SystemExit):
        matrix.main(["--pythons", "3.9"])
    assert "'3.9' is not one of 3.11" in capsys.readouterr().err


def test_nothing_is_fetched_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is complete is used as it is; one without its last file is fetched again."""
    calls: list[list[str]] = []
    monkeypatch.setattr(fetch_packages, "_fetch", lambda packages, home: calls.append(packages))
    monkeypatch.setattr(fetch_packages, "_relocate", lambda programs, home, patchelf: None)
    monkeypatch.setattr(fetch_packages, "_answer", lambda command: "3.14.7")
    found = {str(fetch_packages.fetch_python("3.14", tmp_path, "patchelf")) for _ in range(2)}
    assert found == {str(tmp_path / "root/usr/bin/python3.14")}
    assert calls == [["python3.14", "python3.14-dev", "libstdc++6"]]
    assert fetch_packages.versions_in(tmp_path) == {"3.14": "3.14.7"}


def test_a_system_without_the_packages_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Elsewhere than on Debian the reason is said, and nothing is written."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(fetch_packages.CannotFetch, match="apt-get is not on this system"):
        fetch_packages.fetch_python("3.14", tmp_path / "home", "patchelf")
    assert not (tmp_path / "home").exists()


def test_a_program_that_does_not_start_is_not_used(tmp_path: Path) -> None:
    """A fetched program has to say its version before it counts."""
    with pytest.raises(fetch_packages.CannotFetch, match="does not start"):
        fetch_packages._answer([sys.executable, "-c", "raise SystemExit(3)"])
