"""Growth next to a peer: a step that returns much, and a step late in a long run, in DBOS."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from bench._arena import Arena
from bench._peers import ours, theirs, told
from bench._table import Contest, Entry

SIZES = [100, 10_000, 1_000_000]
MARKS = [10, 1_000]
STORES = ("SQLite", "PostgreSQL")


def next_to(arena: Arena) -> list[Contest]:
    """Milliseconds, on the stores that both have. DBOS on SQLite is in WAL mode, at its best."""
    contests: list[Contest] = []
    for store in STORES:
        contestants: dict[str, Callable[[], dict[str, Any]]] = {
            f"outlast, {store}": partial(_ours, arena, store)
        }
        if not arena.alone:
            contestants[f"DBOS, {store}"] = partial(_theirs, arena, store)
        found, left_out = arena.alternate(contestants)
        names = {
            "sizes": [f"a step that returns {size:,} B, {store}" for size in SIZES],
            "marks": [f"a step after {mark:,} others, {store}" for mark in MARKS],
        }
        for key, contested in names.items():
            for number, name in enumerate(contested):
                entries = [
                    Entry(who, [one[key][number] for one in rounds], rounds[0]["settings"])
                    for who, rounds in found.items()
                ]
                contests.append(Contest(name, "ms", entries, less=True, left_out=left_out))
    return contests


def _ours(arena: Arena, store: str) -> dict[str, Any]:
    [found] = told([ours("bench._growing", arena.place(store), *_sizes())], arena.folder)
    return found


def _theirs(arena: Arena, store: str) -> dict[str, Any]:
    place = arena.place(store).removeprefix("sqlite:///")
    [found] = told([theirs("dbos", "dbos_growing", place, *_sizes())], arena.folder)
    return found


def _sizes() -> tuple[str, str]:
    return json.dumps(SIZES), json.dumps(MARKS)
