"""What was measured: contests of several contestants, round by round, for people and for programs.

A *contest* is one figure (steps a second, milliseconds, bytes) of several contestants. Ours is the
first entry; each of the others has a ratio against it, *how many times better outlast is*, taken
within each round, since rounds alternate between the contestants and a slow moment of the machine
hits all. Below 1 the other is better. Where all entries are ours and the question is how a figure
*grows*, the ratio is the other way round: how many times the first entry's figure each one has.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One contestant: a value for each round, and how durable it was meanwhile."""

    who: str
    values: list[float]
    settings: str = ""


class Aim(NamedTuple):
    """What was asked for: a ratio `against` another contestant, or a value if that is empty."""

    wanted: float
    against: str = ""


@dataclass(frozen=True)
class Contest:
    """One figure of several contestants. `less` says that less is better, `grows` that the entries
    are ours in several sizes."""

    name: str
    unit: str
    entries: list[Entry]
    less: bool = False
    aims: list[Aim] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Who could not take part, and why."""
    grows: bool = False
    stacks: dict[str, float] = field(default_factory=dict)
    """Shares of the time by stack, `layer|function;layer|function`, for a flame graph."""

    def compares(self, entry: Entry) -> bool:
        """Whether an entry is set against the first: others are, and ours in several sizes."""
        return entry is not self.entries[0] and (self.grows or not entry.who.startswith("outlast"))

    def ratios(self, other: Entry) -> list[float]:
        """How many times better ours is than another, round by round; or how many times the first
        another is, if it grows."""
        pairs = zip(self.entries[0].values, other.values, strict=False)
        return [_over(b, a) if self.less or self.grows else _over(a, b) for a, b in pairs]

    def reached(self, aim: Aim) -> bool | None:
        """Whether an aim was reached; None if the one it is against did not take part."""
        if not aim.against:
            value = statistics.median(self.entries[0].values)
            return value <= aim.wanted if self.less else value >= aim.wanted
        for entry in self.entries[1:]:
            if entry.who == aim.against:
                ratio = statistics.median(self.ratios(entry))
                return ratio <= aim.wanted if self.grows and self.less else ratio >= aim.wanted
        return None


def _over(a: float, b: float) -> float:
    return a / b if b else float("inf") if a else 1.0


def in_words(contest: Contest) -> str:
    """The contest for people."""
    lines = [f"{contest.name} [{contest.unit}{', less is better' if contest.less else ''}]"]
    aims = {aim.against: aim for aim in contest.aims}
    for number, entry in enumerate(contest.entries):
        text = f"  {entry.who:34} {spread(entry.values):>28}"
        if contest.compares(entry):
            what = "the first" if contest.grows else "outlast"
            text += f"   {what} × {spread(contest.ratios(entry)):22}"
        aim = aims.pop(entry.who if number else "", None)
        if aim is not None:
            told = "reached" if contest.reached(aim) else "MISSED"
            bound = "at most " if contest.less and (contest.grows or not aim.against) else ""
            text += f" (aim {bound}{aim.wanted:,g}: {told})"
        lines.append(f"{text}   [{entry.settings}]" if entry.settings else text)
    lines += [f"  {who:34} not measured: {why}" for who, why in contest.left_out.items()]
    return "\n".join(lines)


def as_json(contest: Contest) -> dict[str, Any]:
    """The contest for programs: bench/_page.py and bench/_plot.py read it."""
    return {
        "name": contest.name,
        "unit": contest.unit,
        "less": contest.less,
        "grows": contest.grows,
        "entries": [
            {
                "who": entry.who,
                **_figures("value", entry.values),
                **(_figures("ratio", contest.ratios(entry)) if contest.compares(entry) else {}),
                "settings": entry.settings,
            }
            for entry in contest.entries
        ],
        "aims": [
            {"against": aim.against, "wanted": aim.wanted, "reached": contest.reached(aim)}
            for aim in contest.aims
        ],
        "left_out": contest.left_out,
        **({"stacks": contest.stacks} if contest.stacks else {}),
    }


def contests_of(results: dict[str, Any], workload: str) -> list[dict[str, Any]]:
    """All contests of a workload in a file of results, of one part after the other."""
    return [one for part in results.get(workload, {}).values() for one in part["contests"]]


def _figures(name: str, values: Sequence[float]) -> dict[str, float]:
    found = {"": statistics.median(values), "_low": min(values), "_high": max(values)}
    return {f"{name}{part}": value for part, value in found.items()}


def spread(values: Sequence[float]) -> str:
    """Median and range."""
    return in_range(statistics.median(values), min(values), max(values), many=len(values) > 1)


def in_range(median: float, low: float, high: float, *, many: bool = True) -> str:
    """A figure with its range, with as many digits as it deserves."""
    form = ",.0f" if median >= 100 else ".1f" if median >= 10 else ".2f"
    return f"{median:{form}}" + (f" ({low:{form}}–{high:{form}})" if many else "")
