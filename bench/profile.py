"""Where the time goes: ten-step workflows on SQLite, many at once and one at a time, by layer.

The stack of the thread that does all of it is looked at a thousand times a second (bench/_sampling.py).
Shown are the shares of the layers, and, with `--plot`, the stacks as a flame graph: as wide as their
share of the time, what is called below its caller.

    ./dev bench profile [--rounds 3] [--at-once 100] [--batches 20] [--one-by-one 300] [--plot FOLDER]
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from bench._arena import Arena, Size, compete
from bench._peers import ours, told
from bench._sampling import Stacks, shares
from bench._table import Contest, Entry

LEAST = 0.002
"""Of all the time: what is less is left out of the pictures."""


def main(argv: list[str]) -> int:
    """Look."""
    sizes = {
        "at_once": Size(100, 100, "workflows at once"),
        "batches": Size(20, 50, "times that many"),
        "one_by_one": Size(300, 1_000, "workflows one at a time"),
    }
    return compete(__name__, argv, {"sqlite": sqlite}, rounds=3, sizes=sizes)


def sqlite(arena: Arena) -> list[Contest]:
    """Shares of the time, and the stacks."""
    found, _ = arena.alternate({"outlast, SQLite": lambda: _looked_at(arena)})
    rounds = found["outlast, SQLite"]
    settings = rounds[0]["settings"]
    return [
        _contest(f"where the time goes, {what}, SQLite", [_stacks(one[key]) for one in rounds], settings)
        for key, what in (("together", f"{arena.size('at_once')} at once"), ("alone", "one at a time"))
    ]  # fmt: skip


def _looked_at(arena: Arena) -> dict[str, Any]:
    sizes = (arena.size(name) for name in ("at_once", "batches", "one_by_one"))
    file = arena.place("SQLite").removeprefix("sqlite:///")
    [found] = told([ours("bench._profiled", file, *map(str, sizes))], arena.folder)
    return found


def _stacks(listed: list[tuple[list[str], float]]) -> Stacks:
    return {tuple(stack): seconds for stack, seconds in listed}


def _contest(name: str, rounds: list[Stacks], settings: str) -> Contest:
    every: Stacks = defaultdict(float)
    for one in rounds:
        for stack, seconds in one.items():
            every[stack] += seconds
    by_round = [shares(one) for one in rounds]
    entries = [
        Entry(f"outlast: {layer}", [one.get(layer, 0.0) for one in by_round], settings)
        for layer in shares(every)
    ]
    total = sum(every.values()) or 1.0
    kept = {";".join(stack): seconds / total for stack, seconds in pruned(every).items()}
    return Contest(name, "% of the time", entries, stacks=kept)


def pruned(stacks: Stacks) -> Stacks:
    """The same time in fewer stacks: what is rare counts for its caller."""
    total = sum(stacks.values())
    inside: Stacks = defaultdict(float)
    for stack, seconds in stacks.items():
        for depth in range(1, len(stack) + 1):
            inside[stack[:depth]] += seconds
    found: Stacks = defaultdict(float)
    for stack, seconds in stacks.items():
        depth = len(stack)
        while depth and inside[stack[:depth]] < LEAST * total:
            depth -= 1
        found[stack[:depth]] += seconds
    return found
