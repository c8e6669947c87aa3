"""The table of tested versions: one run of tests is one row, kept in docs/reports/versions.json, and
the page beside it is written from that."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".cache" / "matrix"
REPORT = ROOT / "docs" / "reports" / "versions.json"
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error(?:s)?|xfailed)")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
SKIPPED = re.compile(r"^SKIPPED \[(\d+)\] \S+?: (.+)$", re.MULTILINE)
MOST_NAMES = 100


@dataclass(frozen=True)
class Row:
    """One line of the table: what was tested, with which versions, and how it went."""

    what: str
    tests: str
    versions: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    date: str = ""
    problem: str = ""
    again: int = 0
    """How many of `passed` had failed in the whole run, and passed when they were run alone."""
    again_on: str = ""
    """The date of that; `date` is that of the whole run."""
    failures: Sequence[str] = ()
    skips: Sequence[str] = ()

    @property
    def name(self) -> tuple[str, str]:
        """What makes it the same row the next time."""
        return self.what, self.tests


def run_tests(row: Row, command: Sequence[str], environment: Mapping[str, str]) -> Row:
    """Run pytest and read from what it says how it went; the whole text stays in `.cache/matrix/`."""
    began = time.monotonic()
    log = LOGS / f"{re.sub(r'[^a-z0-9.]+', '-', f'{row.what} {row.tests}'.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as output:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    closing = [line for line in text.splitlines() if re.search(r"\d+ (passed|failed).* in ", line)]
    counts = {kind: int(number) for number, kind in COUNT.findall(closing[-1] if closing else "")}
    failed = counts.get("failed", 0) + counts.get("error", 0) + counts.get("errors", 0)
    problem = ""
    if not closing or (done.returncode != 0 and not failed):
        problem = f"exit {done.returncode}: {' '.join(text.split())[-200:]}"
    return replace(
        row,
        passed=counts.get("passed", 0), failed=failed, skipped=counts.get("skipped", 0),
        seconds=round(time.monotonic() - began), date=today(), problem=problem,
        failures=sorted(set(FAILED.findall(text)))[:MOST_NAMES],
        skips=_reasons(text),
    )  # fmt: skip


def run_again(row: Row, command: Sequence[str], environment: Mapping[str, str]) -> Row | None:
    """Run by themselves the tests that failed with just these versions; None if none is known of. What
    passes now counts as passed, and the row says how many that are."""
    known = {one.name: one for one in known_rows()}.get(row.name)
    if known is None or known.versions != row.versions or known.failed != len(known.failures):
        return None
    if not known.failures:
        return None
    now = run_tests(row, [*command, *known.failures], environment)
    if now.problem:  # such as a test that has another name now
        return known
    return replace(
        known,
        passed=known.passed + now.passed,
        failed=known.failed - now.passed,
        again=known.again + now.passed,
        again_on=now.date,
        failures=now.failures,
    )


def _reasons(text: str) -> list[str]:
    """Why tests were skipped, each reason with the number of tests."""
    found: Counter[str] = Counter()
    for number, reason in SKIPPED.findall(text):
        found[reason] += int(number)
    return [f"{number} × {reason}" for reason, number in sorted(found.items())]


def write(row: Row) -> None:
    """Put it into the table, in the place of the one that was there; the others stay."""
    REPORT.parent.mkdir(exist_ok=True)
    rows = {known.name: known for known in known_rows()}
    rows[row.name] = row
    listed = sorted(rows.values(), key=_order)
    text = json.dumps([asdict(one) for one in listed], indent=1, ensure_ascii=False)
    REPORT.write_text(text + "\n", encoding="utf-8")
    REPORT.with_suffix(".md").write_text(page(listed), encoding="utf-8")


def known_rows() -> list[Row]:
    """What earlier runs have found."""
    if not REPORT.exists():
        return []
    return [Row(**row) for row in json.loads(REPORT.read_text(encoding="utf-8"))]


def page(rows: Sequence[Row]) -> str:
    """The table as a page of the docs."""
    lines = [
        "# Tested versions",
        "",
        "Written by `./dev matrix`, which runs the tests on each version; a row that was not run again",
        "keeps its date. What passed at the second try was run alone then, perhaps with newer code than the",
        "rest of its row. CI runs the suite on Python 3.11 with the system's servers, and a part of the tests",
        "without servers on 3.14.",
        "",
        "| What | Versions | Tests | Passed | Failed | Skipped | Seconds | Date |",
        "|---|---|---|---|---|---|---|---|",
        *map(_cells, rows),
        "",
        "## Not tested",
        "",
        "- Windows: `import outlast` and the memory store work without `fcntl` and `fork` (a test of",
        "  every day takes both away). Nothing has been run on Windows itself.",
        "- Free-threaded Python: the distribution has no such build. outlast warns there when it is",
        "  imported.",
        "- PostgreSQL 13, 14, 16 and 17, Redis 6.2 and 7.2 to 7.4, Valkey 7 and 8: they are accepted,",
        "  and the distribution has no packages of them. Older ones are refused when a store opens.",
    ]
    for title, told in (("Failed", _failures(rows)), ("Skipped", _skips(rows))):
        if told:
            lines += ["", f"## {title}", "", *told]
    return "\n".join(lines) + "\n"


def line_of(row: Row) -> str:
    """A row for who waits at the terminal."""
    if row.problem:
        return f"{row.what}: not tested: {row.problem}"
    return (
        f"{row.what} ({row.versions}), {row.tests}: {row.passed} passed, {row.failed} failed, "
        f"{row.skipped} skipped in {row.seconds} s"
    )


def today() -> str:
    """The date, as in the table."""
    return datetime.now(UTC).date().isoformat()


def _order(row: Row) -> tuple[int, str, str]:
    kinds = ("Python", "PostgreSQL", "Redis", "Valkey")
    kind = next((at for at, name in enumerate(kinds) if row.what.startswith(name)), len(kinds))
    return kind, row.what, row.tests


def _cells(row: Row) -> str:
    if row.problem:
        reason = row.problem.replace("|", "/").replace("\n", " ")
        return f"| {row.what} | not tested: {reason} | {row.tests} | | | | | {row.date} |"
    then = f", {row.again_on}" if row.again_on else ""
    passed = f"{row.passed:,}" + (f" ({row.again} at the second try{then})" if row.again else "")
    return (
        f"| {row.what} | {row.versions} | {row.tests} | {passed} | {row.failed:,} "
        f"| {row.skipped:,} | {row.seconds:,} | {row.date} |"
    )


def _failures(rows: Sequence[Row]) -> list[str]:
    return [f"- {row.what}, {row.tests}: `{name}`" for row in rows for name in row.failures]


def _skips(rows: Sequence[Row]) -> list[str]:
    return [f"- {row.what}, {row.tests}: {'; '.join(row.skips)}" for row in rows if row.skips]
