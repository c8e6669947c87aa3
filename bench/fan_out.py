"""Fan-out: one workflow that maps a tiny step over many items, a hundred at once.

peers      1,000 items, on SQLite and PostgreSQL, next to DBOS with as many: as steps side by side in one
           workflow, and as a workflow for each item in a queue, as its documentation has it
items      10,000 items of ours, on every store
most       100,000 items of ours, on SQLite

Items a second, the most memory that the process had, and how many runs there are: the map is one run with
one history, whatever the number of items.

    ./dev bench fan_out [--rounds 3] [--items 10000] [--most 100000] [--alone] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench._aims import MEGABYTES
from bench._arena import Arena, Size, compete
from bench._peers import ours, theirs, told
from bench._stores import STORES
from bench._table import Aim, Contest, Entry

AT_ONCE = 100
MB = 1e6
LONG = 1800.0
PACKAGES = ("dbos",)
DBOS_ON = ("SQLite", "PostgreSQL")
WAYS = {"DBOS, steps": "steps", "DBOS, queued workflows": "workflows"}

Told = dict[str, Any]


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "few": Size(1_000, 10_000, "items next to DBOS"),
        "items": Size(10_000, 10_000, "items on every store"),
        "most": Size(100_000, 100_000, "items on SQLite"),
    }
    parts = {"peers": peers, "items": items, "most": most}
    return compete(__name__, argv, parts, rounds=3, sizes=sizes, peers=PACKAGES)


def peers(arena: Arena) -> list[Contest]:
    """Next to DBOS, with as many items."""
    contests = []
    for store in DBOS_ON:
        others: dict[str, Callable[[], Told]] = {
            f"{who}, {store}": partial(_theirs, arena, store, arena.size("few"), how)
            for who, how in WAYS.items()
            if not arena.alone
        }
        contests += _mapped(arena, store, arena.size("few"), others)
    return contests


def items(arena: Arena) -> list[Contest]:
    """On every store."""
    return [one for store in STORES for one in _mapped(arena, store, arena.size("items"), {})]


def most(arena: Arena) -> list[Contest]:
    """On SQLite: whether memory holds out."""
    return _mapped(arena, "SQLite", arena.size("most"), {})


def _mapped(
    arena: Arena, store: str, count: int, others: dict[str, Callable[[], Told]]
) -> list[Contest]:
    contestants: dict[str, Callable[[], Told]] = {
        f"outlast, {store}": partial(_ours, arena, store, count),
        **others,
    }
    found, left_out = arena.alternate(contestants)
    name = f"map over {count:,} items, {store}"

    def entries(value: Callable[[Told], float]) -> list[Entry]:
        return [
            Entry(who, [value(one) for one in told], told[0]["settings"])
            for who, told in found.items()
        ]

    speed = entries(lambda one: count / one["seconds"])
    memory = entries(lambda one: one["most"] / MB)
    runs = entries(lambda one: one["runs"])
    return [
        Contest(name, "items/s", speed, left_out=left_out),
        Contest(f"{name}, most memory", "MB", memory, True, [Aim(MEGABYTES)], left_out),
        Contest(f"{name}, runs", "runs", runs, True, [Aim(1)], left_out),
    ]


def _ours(arena: Arena, store: str, count: int) -> Told:
    program = ours("bench._mapping", arena.place(store), str(count), str(AT_ONCE))
    [found] = told([program], arena.folder, patience=LONG)
    return found


def _theirs(arena: Arena, store: str, count: int, how: str) -> Told:
    place = arena.place(store).removeprefix("sqlite:///")
    program = theirs("dbos", "dbos_mapping", place, str(count), str(AT_ONCE), how)
    [found] = told([program], arena.folder, patience=LONG)
    return found
