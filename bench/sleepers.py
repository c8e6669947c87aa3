"""Runs that sleep: what they cost while they do, and how fast they wake.

Many runs are put to sleep until one moment: the memory that they hold, and how many are put to sleep in
a second. Then nothing happens for some seconds: how often the store is asked meanwhile (statements of
SQLite, transactions of PostgreSQL, commands of Redis). Then all are due at once: how many wake and end
in a second.

    ./dev bench sleepers [--rounds 1] [--sleepers 20000] [--fewer 3000] [--idle 10] [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench._arena import Arena, Size, compete
from bench._peers import ours, told
from bench._stores import STORES
from bench._table import Aim, Contest, Entry

MIB = 2**20
LONG = 1800.0
ENOUGH = 100.0


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "sleepers": Size(20_000, 100_000, "runs that sleep on SQLite"),
        "fewer": Size(3_000, 100_000, "runs that sleep on PostgreSQL and on Redis"),
        "idle": Size(10, 30, "seconds in which nothing happens"),
    }
    return compete(__name__, argv, {"sleep": sleep}, rounds=1, sizes=sizes)


def sleep(arena: Arena) -> list[Contest]:
    """On every store."""
    found, _ = arena.alternate(
        {f"outlast, {store}": partial(_asleep, arena, store) for store in STORES}
    )

    def contest(
        name: str, unit: str, value: Callable[[dict[str, Any]], float], less: bool, aims: list[Aim]
    ) -> Contest:
        entries = [
            Entry(
                who,
                [value(one) for one in rounds],
                f"{rounds[0]['settings']}; {rounds[0]['count']:,} runs",
            )
            for who, rounds in found.items()
        ]
        return Contest(name, unit, entries, less, aims)

    return [
        contest("memory that sleeping runs hold", "MiB", lambda one: one["memory"] / MIB, True, [Aim(ENOUGH)]),
        contest("runs put to sleep", "runs/s", lambda one: one["count"] / one["slept"], False, []),
        contest("queries while all sleep", "/s", lambda one: one["queries"], True, []),
        contest("runs that wake and end", "runs/s", lambda one: one["count"] / one["woke"], False, []),
    ]  # fmt: skip


def _asleep(arena: Arena, store: str) -> dict[str, Any]:
    count = arena.size("sleepers" if store == "SQLite" else "fewer")
    program = ours("bench._sleepers", arena.place(store), str(count), str(arena.size("idle")))
    [found] = told([program], arena.folder, patience=LONG)
    return found
