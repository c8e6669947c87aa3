"""What all tests share: how hypothesis looks for examples. Markers are declared in pyproject.toml."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

ROOT = Path(__file__).parent.parent
EXAMPLES = DirectoryBasedExampleDatabase(ROOT / ".cache" / "hypothesis")

# No deadline: a busy machine is not a bug. A failing example is kept and tried first the next time.
settings.register_profile("default", deadline=None, database=EXAMPLES)
# CI tries the same examples every time, so that what is red was made red by the change: looking for
# new ones is what developers' runs, `thorough` and `./dev prove` are for.
settings.register_profile(
    "ci", parent=settings.get_profile("default"), print_blob=True, derandomize=True, database=None
)
# `HYPOTHESIS_PROFILE=thorough ./dev test -k …` digs deeper.
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), max_examples=5_000, print_blob=True
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a kit that is `sampled` most cases are for campaigns, `./dev test -m prove tests/…`: what is
    below is certified as a whole elsewhere, and all of it on every store would take too long."""
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None and zlib.crc32(item.nodeid.encode()) % sampled.args[0]:
            item.add_marker("prove")
