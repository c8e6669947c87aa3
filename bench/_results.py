"""The results of a benchmark in a file, by part: what was measured on and when, and its contests.

A part that is measured again replaces what it had, unless it fails; others stay, so that a benchmark
that was ended half way goes on with `--only PART` on the same file. It is written after each part.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench._plot import draw
from bench._table import Contest, as_json
from tools.modules import write_json

OLD = "when measured again; the figures are those of before"


class Results:
    """Those of one benchmark. `file` and `plots` are None if nobody has asked for them."""

    def __init__(self, name: str, parts: list[str], file: Path | None, plots: Path | None) -> None:
        self._name, self._order, self._file, self._plots = name, parts, file, plots
        self.parts: dict[str, dict[str, Any]] = {}
        if file is not None and file.exists():
            kept = json.loads(file.read_text(encoding="utf-8")).get(name, {})
            self.parts = {part: kept[part] for part in parts if part in kept}

    def add(self, part: str, about: dict[str, Any], contests: list[Contest]) -> None:
        """Put in what a part has found, instead of what was there of it. If it has failed, figures that
        were there stay, with what happened."""
        old = self.parts.get(part, {})
        if about["failed"] and old.get("contests"):
            self.parts[part] = {**old, "failed": f"{about['failed']} ({OLD})"}
        else:
            self.parts[part] = {**about, "contests": [as_json(one) for one in contests]}
        results = {self._name: {one: self.parts[one] for one in self._order if one in self.parts}}
        if self._file is not None:
            write_json(self._file, results)
        if self._plots is not None:
            draw(results, self._plots)

    def tell_failures(self, parts: list[str]) -> int:
        """Print which of these parts have failed; 1 if any has."""
        failed = {part: self.parts[part]["failed"] for part in parts if self.parts[part]["failed"]}
        for part, reason in failed.items():
            print(f"FAILED: {self._name} {part}: {reason}")
        return 1 if failed else 0
