"""A table of measurements: each line with its median and range, what it stands against, its aim."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import NamedTuple


class Line(NamedTuple):
    """One line of the table. `aim` is what the ratio must reach, None if nothing was asked; a value
    of `enough` will do as well."""

    name: str
    unit: str
    values: list[float]
    against: list[float] | None = None
    what: str = ""
    aim: float | None = None
    enough: float = inf

    @property
    def ratios(self) -> list[float]:
        """Ours in terms of theirs, round by round."""
        return [
            ours / theirs for ours, theirs in zip(self.values, self.against or [], strict=False)
        ]


def in_words(line: Line) -> str:
    """The line for people."""
    text = f"{line.name:60} {spread(line.values):>28} {line.unit}"
    if line.against:
        ratio = statistics.median(line.ratios)
        text += f"   {line.what} {spread(line.against)}   ratio {ratio:.2f}"
        if line.aim is not None:
            reached = ratio >= line.aim or statistics.median(line.values) >= line.enough
            text += f" (aim {line.aim:.2f}: {'reached' if reached else 'MISSED'})"
    return text


def as_json(line: Line) -> dict[str, object]:
    """The line for programs."""
    return {
        "value": statistics.median(line.values),
        "unit": line.unit,
        "against": statistics.median(line.against) if line.against else None,
        "ratio": statistics.median(line.ratios) if line.against else None,
    }


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    median = statistics.median(values)
    text = f"{median:,.0f}" if median >= 100 else f"{median:.1f}"
    return text if len(values) == 1 else f"{text} ({min(values):,.0f}–{max(values):,.0f})"


@contextmanager
def made_ready() -> Iterator[None]:
    """What was made before is not for the garbage collector to walk over while the clock runs."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
