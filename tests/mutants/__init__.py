"""Mutants of this project, one module for each part that they break.

A mutant takes four lines: a name that says what is broken, the file, the text, what takes its place.
Add it to the list of its part; `./dev mutants` finds it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from outlast.testkit.mutation import Mutant

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "outlast"
PARTS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith(("_", "test_"))
)


def every() -> list[Mutant]:
    """All mutants of all parts."""
    return [mutant for part in PARTS for mutant in _of(part)]


def _of(part: str) -> list[Mutant]:
    found: list[Mutant] = import_module(f"tests.mutants.{part}").MUTANTS
    return found
