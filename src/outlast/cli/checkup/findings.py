"""Finding: something that was looked at, and what to do about it."""

from __future__ import annotations

import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple


class Finding(NamedTuple):
    """Something that was looked at: `level` is ok, warning or problem."""

    level: str
    what: str
    remedy: str = ""


def versions() -> Finding:
    """What this process runs on."""
    try:
        own = version("outlast")
    except PackageNotFoundError:
        own = "(not installed: run from its source)"
    told = f"outlast {own}, Python {platform.python_version()}"
    return Finding("ok", f"{told}, SQLite {sqlite3.sqlite_version}")
