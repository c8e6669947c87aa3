"""The README's first example crashes and resumes, in two real processes, and prints what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent.parent / "README.md").read_text(encoding="utf-8")


def fenced(kind: str) -> str:
    """The first block of the README with this info string."""
    found = re.search(rf"^```{kind}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.proves("I8", "R-22", "S-16")
def test_the_first_example_crashes_and_resumes(tmp_path: Path) -> None:
    """The first process dies in a step; the second goes on without repeating what is recorded."""
    (tmp_path / "order.py").write_text(fenced("python no-run"), encoding="utf-8")
    shown = ""
    codes = []
    for _ in range(2):
        command = [sys.executable, "-u", "order.py"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        shown += f"$ python order.py\n{done.stdout}"
        codes.append((done.returncode, done.stderr))
    assert codes == [(1, ""), (0, "")]
    assert shown == fenced("console")
