"""Runs that sleep: what they cost while they do, and how fast they wake.

Many runs are put to sleep until one moment: the memory that they hold, and how many are put to sleep in
a second. Then nothing happens for some seconds: how often the store is asked meanwhile (statements of
SQLite, transactions of PostgreSQL, commands of Redis). Then all are due at once: how many wake and end
in a second. DBOS, next to us, is given fewer, and its statements on SQLite are not counted. Others have
no durable sleep that a process could be measured with (LangGraph, eventsourcing, the queues), or keep it
in a server (Restate) or as a task of a table (Absurd), whose memory is not a run's.

    ./dev bench sleepers [--rounds 1] [--sleepers 100000] [--fewer 10000] [--theirs 300] [--idle 10]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench._arena import Arena, Size, compete
from bench._peers import ours, theirs, told
from bench._table import Aim, Contest, Entry

KIB, MIB = 2**10, 2**20
LEAST = 0.01
"""KiB that a figure of memory is at least: what was free before may have been used."""

PEERS = ("SQLite", "PostgreSQL")
LONG = 1800.0
ENOUGH = 100.0

PACKAGES = ("dbos",)


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "sleepers": Size(100_000, 100_000, "runs that sleep on SQLite"),
        "fewer": Size(10_000, 100_000, "runs that sleep on PostgreSQL and on Redis"),
        "theirs": Size(300, 2_000, "runs of a peer that sleep"),
        "idle": Size(10, 30, "seconds in which nothing happens"),
    }
    names = {"sqlite": "SQLite", "postgres": "PostgreSQL", "redis": "Redis"}
    parts = {part: partial(sleep, store=store) for part, store in names.items()}
    return compete(__name__, argv, parts, rounds=1, sizes=sizes, peers=PACKAGES)


def sleep(arena: Arena, store: str) -> list[Contest]:
    """On one store."""
    contestants = {f"outlast, {store}": partial(_ours, arena, store)}
    if store in PEERS and not arena.alone:
        contestants[f"DBOS, {store}"] = partial(_theirs, arena, store)
    return _contests(store, *arena.alternate(contestants))


def _contests(
    store: str, found: dict[str, list[dict[str, Any]]], left_out: dict[str, str]
) -> list[Contest]:
    def contest(
        name: str,
        unit: str,
        value: Callable[[dict[str, Any]], float],
        less: bool,
        aims: Sequence[Aim] = (),
        only: str = "",
    ) -> Contest:
        entries = [
            Entry(
                who,
                [value(one) for one in rounds],
                f"{rounds[0]['settings']}; {rounds[0]['count']:,} runs",
            )
            for who, rounds in found.items()
            if who.startswith(only)
        ]
        return Contest(f"{name}, {store}", unit, entries, less, list(aims), left_out)

    counted = "outlast" if store == "SQLite" else ""
    return [
        contest("memory that all sleeping runs hold", "MiB", lambda one: one["memory"] / MIB, True, [Aim(ENOUGH)], "outlast"),
        contest("memory that a sleeping run holds", "KiB", lambda one: max(one["memory"] / one["count"] / KIB, LEAST), True),
        contest("runs put to sleep", "runs/s", lambda one: one["count"] / one["slept"], False),
        contest("queries while all sleep", "/s", lambda one: one["queries"], True, only=counted),
        contest("runs that wake and end", "runs/s", lambda one: one["count"] / one["woke"], False),
    ]  # fmt: skip


def _ours(arena: Arena, store: str) -> dict[str, Any]:
    count = arena.size("sleepers" if store == "SQLite" else "fewer")
    program = ours("bench._sleepers", arena.place(store), str(count), str(arena.size("idle")))
    [found] = told([program], arena.folder, patience=LONG)
    return found


def _theirs(arena: Arena, store: str) -> dict[str, Any]:
    place = arena.place(store).removeprefix("sqlite:///")
    sizes = (str(arena.size("theirs")), str(arena.size("idle")))
    [found] = told([theirs("dbos", "dbos_sleepers", place, *sizes)], arena.folder)
    return found
