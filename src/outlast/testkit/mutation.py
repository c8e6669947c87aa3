"""Mutants: break the code on purpose, one small change at a time, and see whether a test notices.

A mutant is data: a name, a file, a text that occurs there exactly once, and what to put in its
place. It is applied to a copy of the sources; the tests that should notice run on that copy. One
that survives shows a promise that no test holds the code to.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

# In the same process as the tests, so that what is checked is what is tested: an editable install
# must not win over the copy.
RUN = """
import importlib.util, sys, pytest
found = importlib.util.find_spec("outlast").origin
if not found.startswith(sys.argv[1]):
    sys.exit(f"the tests would run on {found}, not on the copy in {sys.argv[1]}")
sys.exit(pytest.main(sys.argv[2:]))
"""
OPTIONS = ("-x", "-q", "--no-header", "-p", "no:xdist", "-o", "timeout=30")
# A line of a log may begin like that too, but goes on with more than one space.
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
KILLED, NOTHING_FAILED = 1, 0


class Mutant(Struct, frozen=True):
    """A change that a test has to notice. `file` is relative to the package."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ("tests/stores/conformance",)

    def apply(self, package: Path) -> None:
        """Change the file below `package`; `ValueError` if its text is not there exactly once."""
        path = package / self.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text.count(self.old) != 1:
            raise ValueError(
                f"mutant does not apply: {self.name!r} looks for {self.old!r} in {self.file} and "
                f"finds it {text.count(self.old)} times. Bring it up to date with the code"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    INVALID = "INVALID"


class Report(Struct, frozen=True):
    """A mutant, what became of it, and by which test."""

    mutant: Mutant
    verdict: Verdict
    by: str

    def __str__(self) -> str:
        return f"{self.verdict:<9} {self.mutant.name:<45} {self.by}"


def applies(mutants: Iterable[Mutant], package: Path) -> list[str]:
    """What is wrong with mutants that do not fit the code, or change nothing; no test is run."""
    wrong = []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / mutant.file
            target.parent.mkdir(parents=True, exist_ok=True)
            if (package / mutant.file).exists():
                shutil.copy(package / mutant.file, target)
            try:
                mutant.apply(Path(folder))
                if target.suffix == ".py":
                    compile(target.read_text(encoding="utf-8"), mutant.file, "exec")
            except (ValueError, SyntaxError) as error:
                wrong.append(str(error))
            if mutant.old == mutant.new:
                wrong.append(f"{mutant.name!r} changes nothing")
    return wrong


def hunt(mutants: Iterable[Mutant], root: Path, *, jobs: int = 2) -> Iterator[Report]:
    """Run the tests on each mutant, several at a time, and report as they come in. `root` is a
    checkout with `src/outlast` and the tests."""
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for future in as_completed([pool.submit(run, mutant, root) for mutant in mutants]):
            yield future.result()


def run(mutant: Mutant, root: Path, *, timeout: float = 600.0) -> Report:
    """Run the tests on one mutant."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        # The real path: on some systems the temporary folder is a link.
        sources = Path(folder).resolve() / "src"
        shutil.copytree(root / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        try:
            mutant.apply(sources / "outlast")
        except ValueError as error:
            return Report(mutant, Verdict.INVALID, str(error))
        options = [*OPTIONS, "-o", f"cache_dir={folder}/cache"]
        command = [sys.executable, "-B", "-c", RUN, str(sources), *options, *mutant.tests]
        environment = os.environ | {"PYTHONPATH": str(sources)}
        try:
            result = subprocess.run(
                command,
                cwd=root,
                env=environment,
                capture_output=True,
                text=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Report(mutant, Verdict.KILLED, f"nothing: stopped after {timeout:.0f} s")
    return _judged(mutant, result.returncode, result.stdout + result.stderr)


def _judged(mutant: Mutant, code: int, output: str) -> Report:
    failed = FAILURE.search(output)
    if code == KILLED and failed is not None:
        return Report(mutant, Verdict.KILLED, failed[1])
    if code == NOTHING_FAILED:
        return Report(mutant, Verdict.SURVIVED, "")
    return Report(mutant, Verdict.INVALID, f"pytest ended with {code}: {output[-600:]}")
