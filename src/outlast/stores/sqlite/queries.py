"""SQL by name: each `-- name:` in sql/*.sql is one statement."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def query(name: str) -> str:
    """The statement of that name."""
    return _queries()[name]


@cache
def _queries() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in files("outlast.stores.sqlite").joinpath("sql").iterdir():
        # Before the first name stands what the file is about.
        _, *parts = _NAME.split(file.read_text(encoding="utf-8"))
        found.update(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    return found
