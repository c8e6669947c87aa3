"""Fan-out: one workflow that maps a tiny step over many items, a hundred at once.

Items a second, and the most memory that the process had. The map is one run with one history, whatever
the number of items. DBOS, next to it on SQLite and PostgreSQL, has a workflow for each item, in a queue,
as its documentation has it; it is given a fiftieth of the items, and its speed is shown.

    ./dev bench fan_out [--rounds 2] [--items 10000] [--most 100000] [--alone] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench._arena import Arena, Size, compete
from bench._peers import ours, theirs, told
from bench._stores import STORES
from bench._table import Aim, Contest, Entry

AT_ONCE = 100
MIB = 2**20
LONG = 1800.0
ENOUGH = 300.0
LESS = 50
"""Of a peer: an item of its own takes as long as many of ours."""

PACKAGES = ("dbos",)


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "items": Size(10_000, 10_000, "items on every store"),
        "most": Size(100_000, 100_000, "items on SQLite"),
    }
    return compete(
        __name__, argv, {"items": items, "most": most}, rounds=2, sizes=sizes, peers=PACKAGES
    )


def items(arena: Arena) -> list[Contest]:
    """On every store, next to DBOS."""
    count = arena.size("items")
    contests: list[Contest] = []
    for store in STORES:
        contestants: dict[str, Callable[[], dict[str, Any]]] = {
            f"outlast, {store}": partial(_ours, arena, store, count)
        }
        if store != "Redis" and not arena.alone:
            fewer = max(count // LESS, 1)
            contestants[f"DBOS, {store}"] = partial(_theirs, arena, store, fewer)
        contests += _contests(arena, f"map over {count:,} items, {store}", contestants)
    return contests


def most(arena: Arena) -> list[Contest]:
    """On SQLite alone, once: whether memory holds out."""
    count = arena.size("most")
    contestants: dict[str, Callable[[], dict[str, Any]]] = {
        "outlast, SQLite": partial(_ours, arena, "SQLite", count)
    }
    return _contests(arena, f"map over {count:,} items, SQLite", contestants, rounds=1)


def _contests(
    arena: Arena, name: str, contestants: dict[str, Callable[[], dict[str, Any]]], rounds: int = 0
) -> list[Contest]:
    found, left_out = arena.alternate(contestants, rounds)

    def entries(value: Callable[[dict[str, Any]], float]) -> list[Entry]:
        return [
            Entry(who, [value(one) for one in told], f"{told[0]['settings']}; {_runs(told[0])}")
            for who, told in found.items()
        ]

    speed = entries(lambda one: one["items"] / one["seconds"])
    memory = entries(lambda one: one["most"] / MIB)
    aims = [Aim(ENOUGH)]
    return [
        Contest(name, "items/s", speed, left_out=left_out),
        Contest(f"{name}, most memory", "MiB", memory, True, aims, left_out),
        Contest(
            f"{name}, runs", "runs", entries(lambda one: one["runs"]), True, [Aim(1)], left_out
        ),
    ]


def _runs(told: dict[str, Any]) -> str:
    return f"{told['items']:,} items in {told['runs']:,} run{'s' if told['runs'] > 1 else ''}"


def _ours(arena: Arena, store: str, count: int) -> dict[str, Any]:
    program = ours("bench._mapping", arena.place(store), str(count), str(AT_ONCE))
    [found] = told([program], arena.folder, patience=LONG)
    return {**found, "items": count}


def _theirs(arena: Arena, store: str, count: int) -> dict[str, Any]:
    place = arena.place(store).removeprefix("sqlite:///")
    [found] = told([theirs("dbos", "dbos_mapping", place, str(count))], arena.folder)
    return {**found, "items": count}
