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
    of `enough` will do as well. With `at_most` both are limits from above. `note` says under which
    settings it was measured."""

    name: str
    unit: str
    values: list[float]
    against: list[float] | None = None
    what: str = ""
    aim: float | None = None
    enough: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def ratios(self) -> list[float]:
        """Ours in terms of theirs, round by round."""
        return [
            ours / theirs for ours, theirs in zip(self.values, self.against or [], strict=False)
        ]

    @property
    def reached(self) -> bool | None:
        """Whether the aim was reached; None if there is none."""
        if self.aim is None and self.enough is None:
            return None
        sign = -1 if self.at_most else 1
        value, ratio = sign * statistics.median(self.values), -inf
        if self.against:
            ratio = sign * statistics.median(self.ratios)
        enough = self.enough is not None and value >= sign * self.enough
        return enough or (self.aim is not None and ratio >= sign * self.aim)


def in_words(line: Line) -> str:
    """The line for people."""
    text = f"{line.name:60} {spread(line.values):>28} {line.unit}"
    if line.against:
        text += f"   {line.what} {spread(line.against)}   ratio {spread(line.ratios)}"
    if line.reached is not None:
        told = "at most " if line.at_most else ""
        told += f"{line.enough if line.aim is None else line.aim:,.4g}"
        text += f" (aim {told}: {'reached' if line.reached else 'MISSED'})"
    return f"{text}   [{line.note}]" if line.note else text


def as_json(line: Line) -> dict[str, object]:
    """The line for programs."""
    found = {
        "value": statistics.median(line.values),
        "unit": line.unit,
        "against": statistics.median(line.against) if line.against else None,
        "ratio": statistics.median(line.ratios) if line.against else None,
    }
    return {**found, "settings": line.note} if line.note else found


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    median = statistics.median(values)
    form = ",.0f" if median >= 100 else ".1f" if median >= 10 else ".2f"
    low, high = min(values), max(values)
    return f"{median:{form}}" + (f" ({low:{form}}–{high:{form}})" if len(values) > 1 else "")


@contextmanager
def made_ready() -> Iterator[None]:
    """What was made before is not for the garbage collector to walk over while the clock runs."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
