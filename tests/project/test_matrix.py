"""`./dev matrix` and the packages that it fetches, as far as they can be tested without fetching."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools import fetch_packages, matrix, matrix_report
from tools.matrix_report import Row


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A report of its own, and a cache for the logs."""
    monkeypatch.setattr(matrix_report, "REPORT", tmp_path / "reports" / "versions.json")
    monkeypatch.setattr(matrix_report, "LOGS", tmp_path)
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
    row = matrix_report.run_tests(Row("Python 3.14", "all"), printing(said, code), {})
    assert (row.passed, row.failed, row.skipped, row.problem) == (passed, failed, skipped, "")


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize("said, code", [("no module named pytest", 1), ("5 passed in 1.00s", 3)])
def test_a_run_that_says_nothing_or_fails_without_a_test_is_a_problem(said: str, code: int) -> None:
    """A runner that does not come to its end is never counted as tested."""
    row = matrix_report.run_tests(Row("Python 3.14", "all"), printing(said, code), {})
    assert f"exit {code}" in row.problem


@pytest.mark.usefixtures("report")
def test_what_failed_and_what_was_skipped_is_named() -> None:
    """Nothing is left out in silence: a skip is listed with its reason, a failure by its name."""
    said = (
        "SKIPPED [1] tests/test_a.py:7: no wheel of zstandard\n"
        "SKIPPED [1] tests/test_a.py:9: no wheel of zstandard\n"
        "FAILED tests/test_b.py::test_c[x y] - AssertionError: no\n"
        "ERROR tests/test_d.py::test_e\n1 failed, 4 passed, 2 skipped, 1 error in 1.00s"
    )
    row = matrix_report.run_tests(Row("Python 3.15", "all"), printing(said, 1), {})
    assert row.skips == ["2 × no wheel of zstandard"]
    assert row.failures == ["tests/test_b.py::test_c[x y]", "tests/test_d.py::test_e"]
    text = matrix_report.page([row])
    assert "- Python 3.15, all: 2 × no wheel of zstandard" in text
    assert "- Python 3.15, all: `tests/test_b.py::test_c[x y]`" in text


def test_rows_that_were_not_run_stay(report: Path) -> None:
    """A partial run updates its own rows and keeps the others with their dates."""
    for row in (
        Row("Redis 8, Python 3.11", "store", "Redis 8.0.6", passed=7, date="2026-02-01"),
        Row("Python 3.14", "all", "Python 3.14.1", passed=5, date="2026-01-01"),
        Row("Python 3.14", "all", "Python 3.14.2", passed=6, date="2026-03-01"),
    ):
        matrix_report.write(row)
    text = report.read_text()
    assert "3.14.1" not in text
    rows = [line for line in text.splitlines() if line.startswith(("| Python", "| Redis"))]
    assert rows == [
        "| Python 3.14 | Python 3.14.2 | all | 6 | 0 | 0 | 0 | 2026-03-01 |",
        "| Redis 8, Python 3.11 | Redis 8.0.6 | store | 7 | 0 | 0 | 0 | 2026-02-01 |",
    ]
    assert [row.date for row in matrix_report.known_rows()] == ["2026-03-01", "2026-02-01"]


@pytest.mark.usefixtures("report")
def test_what_failed_is_run_again_by_itself() -> None:
    """What passes then counts as passed; the row says that it was the second try, and keeps its date."""
    row = Row("Valkey 9", "store", "Valkey 9.1.2", passed=7, failed=2, failures=["a::b", "a::c"])
    row = replace(row, date="2026-02-01")
    matrix_report.write(row)
    told = [sys.executable, "-c", "import sys; print('1 failed, 1 passed in 1s', *sys.argv)"]
    other = replace(row, versions="Valkey 9.2.0")
    assert matrix_report.run_again(other, told, {}) is None, "another version: the whole of it"
    done = matrix_report.run_again(row, told, {})
    assert done is not None
    assert (done.passed, done.failed, done.again, done.date) == (8, 1, 1, "2026-02-01")
    assert f"8 (1 at the second try, {matrix_report.today()})" in matrix_report.page([done])
    matrix_report.write(replace(row, failed=0, failures=[]))
    assert matrix_report.run_again(row, told, {}) is None, "nothing has failed"


def test_what_could_not_be_tested_is_said(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that cannot be had is a row with its reason, not an absent one; the next one is run."""

    def absent(name: str) -> object:
        raise matrix._NotHere(Row(name, "store"), "apt-get is | not here")

    monkeypatch.setattr(matrix, "_on_server", absent)
    assert matrix.main(["--servers", "valkey-9,redis-8"]) == 2
    text = report.read_text()
    assert "| valkey-9 | not tested: apt-get is / not here | store |" in text
    assert "| redis-8 | not tested" in text


def test_the_dependencies_are_those_of_the_project() -> None:
    """The table names what an install brings along, and psycopg, which users bring."""
    assert {"msgspec", "click", "cronsim", "asyncpg", "psycopg", "redis", "boto3", "django"} <= set(
        matrix._declared()
    )


def test_dev_is_called_as_from_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of our own environment has no pip: `./dev` would find none to install another with."""
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin")
    monkeypatch.setenv("UV_CACHE_DIR", "x")
    found = matrix._outside()
    assert found["PATH"] == "/usr/bin"
    assert "UV_CACHE_DIR" not in found


def test_every_row_tests_something_that_is_there() -> None:
    """No folder or file of tests that a row names has moved."""
    named = [*matrix.DEPENDENT, *(test for one in matrix.SERVERS.values() for test in one.tests)]
    missing = [
        name for name in named if not (matrix_report.ROOT / name.partition("::")[0]).exists()
    ]
    assert missing == []


def test_the_exit_code_tells_failures_from_what_could_not_run(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1 for a failed test, 2 for a version that could not be tested, 0 otherwise."""
    found: list[Row] = []
    monkeypatch.setattr(matrix, "_rows", lambda options: iter(found))
    for row, code in [
        (Row("a", "all", passed=1), 0),
        (Row("a", "all", problem="no"), 2),
        (Row("a", "all", failed=1), 1),
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
