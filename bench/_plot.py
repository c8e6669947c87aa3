from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(results: dict[str, Any], folder: Path) -> None: ...
