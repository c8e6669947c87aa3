"""The pages for contributors: every path that they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "outlast"
PATH = re.compile(r"`((?:tests/|docs/|tools/)?[\w./*-]+(?:/|\.py|\.md|\.toml)|tests/[\w/]+)`")
IN_EVERY_STORE = {"commit.py", "claims.py", "inbox.py", "tasks.py", "find.py", "store.py"}


def missing(text: str) -> list[str]:
    """The paths of a page that are neither in the package nor in the project."""
    return [
        path
        for path in PATH.findall(text)
        if not any([*PACKAGE.glob(path), *ROOT.glob(path)])
        and not (path in IN_EVERY_STORE and any(PACKAGE.glob(f"stores/*/{path}")))
    ]


@pytest.mark.parametrize("page", ["architecture.md", "recipes.md"])
def test_every_path_exists(page: str) -> None:
    """A file that moves takes its line on the page along."""
    assert missing((ROOT / "docs" / "contributing" / page).read_text(encoding="utf-8")) == []


def test_a_missing_path_is_found() -> None:
    """Files, folders and patterns are looked up; other code is not a path."""
    text = "`app.py`, `nowhere.py`, `engine/`, `stores/*/commit.py`, `tests/none`, `app.start()`"
    assert missing(text) == ["nowhere.py", "tests/none"]
