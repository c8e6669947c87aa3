"""Ten-step workflows, many at once and one at a time, in outlast on each store and in all peers.

race       100 at once and one at a time: steps a second, p50 and p95 of a workflow, and on PostgreSQL
           the transactions that the database has seen for a step
processes  1, 2 and 4 worker processes on one store, 100 at once in each: steps a second of all

The step adds one to a number. Each contestant is a process of its own on a new and empty store
(Restate: three), and all run the same race, bench/peers/_clock.py. Peers stand next to us on the store
that they use; Restate, which has a log of its own, next to us on every store, and DBOS at its best, which
cannot use Redis, next to us on Redis.

    ./dev bench steps [--rounds 3] [--only race] [--at-once 100] [--alone] [--json FILE] [--plot FOLDER]
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench._arena import Arena, Size, compete
from bench._peers import ours, theirs, told
from bench._restate import restate
from bench._stores import STORES
from bench._table import Aim, Contest, Entry
from bench.peers._clock import STEPS, WARM

PROCESSES = (1, 2, 4)
MANY = 2
"""Rounds of several processes, at most."""

PEERS = {  # who: (package, program, the store that it is on)
    "DBOS, SQLite": ("dbos", "dbos_steps", "SQLite"),
    "DBOS, SQLite in WAL mode": ("dbos", "dbos_steps", "SQLite"),
    "DBOS, SQLite in WAL mode, 8 threads": ("dbos", "dbos_steps", "SQLite"),
    "LangGraph, SQLite": ("langgraph", "langgraph_steps", "SQLite"),
    "DBOS, PostgreSQL": ("dbos", "dbos_steps", "PostgreSQL"),
    "DBOS, PostgreSQL, 8 threads": ("dbos", "dbos_steps", "PostgreSQL"),
    "Absurd, PostgreSQL": ("absurd", "absurd_steps", "PostgreSQL"),
    "LangGraph, PostgreSQL": ("langgraph", "langgraph_steps", "PostgreSQL"),
    "sayiir, PostgreSQL": ("sayiir", "sayiir_steps", "PostgreSQL"),
}
ELSEWHERE = {  # whoever has a store of its own stands next to ours, too
    "SQLite": ["Restate"],
    "PostgreSQL": ["Restate"],
    "Redis": ["DBOS, SQLite in WAL mode, 8 threads", "DBOS, PostgreSQL, 8 threads", "Restate"],
}
AIMS = {  # × steps a second with many at once, × latency of one at a time
    ("SQLite", "DBOS, SQLite"): (100.0, 8.0),
    ("SQLite", "DBOS, SQLite in WAL mode"): (100.0, 8.0),
    ("SQLite", "DBOS, SQLite in WAL mode, 8 threads"): (100.0, 8.0),
    ("SQLite", "Restate"): (10.0, 1.0),
    ("PostgreSQL", "DBOS, PostgreSQL"): (60.0, 5.0),
    ("PostgreSQL", "DBOS, PostgreSQL, 8 threads"): (60.0, 5.0),
    ("PostgreSQL", "Restate"): (6.0, 1.0),
    ("Redis", "DBOS, SQLite in WAL mode, 8 threads"): (60.0, 5.0),
    ("Redis", "DBOS, PostgreSQL, 8 threads"): (60.0, 5.0),
    ("Redis", "Restate"): (6.0, 1.0),
}


class Round(NamedTuple):
    """What one round found. `transactions` of the database for a step; 0 if nobody counted."""

    together: float
    alone: list[float]
    latencies: list[float]
    settings: str
    transactions: float = 0.0


PACKAGES = ("dbos", "restate", "absurd", "langgraph", "sayiir")


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "at_once": Size(100, 500, "workflows at once"),
        "batches": Size(10, 10, "times that many, of ours in a round"),
        "one_by_one": Size(30, 100, "workflows one at a time"),
    }
    return compete(
        __name__,
        argv,
        {"race": race, "processes": processes},
        rounds=3,
        sizes=sizes,
        peers=PACKAGES,
    )


def race(arena: Arena) -> list[Contest]:
    """All against all."""
    contestants: dict[str, Callable[[], Round]] = {
        f"outlast, {store}": partial(_ours, arena, store) for store in (*STORES, "memory")
    }
    if not arena.alone:
        contestants |= {who: partial(_theirs, arena, who) for who in PEERS}
        contestants["Restate"] = partial(_restate, arena)
    found, left_out = arena.alternate(contestants)
    contests: list[Contest] = []
    for store in STORES:
        names = [who for who, (_, _, place) in PEERS.items() if place == store]
        entries = [f"outlast, {store}", *names, *ELSEWHERE[store]]
        if store == "SQLite":
            entries.append("outlast, memory")
        contests += _contests(store, entries, found, left_out, arena.size("at_once"))
    return contests


def _contests(
    store: str,
    names: list[str],
    found: dict[str, list[Round]],
    left_out: dict[str, str],
    at_once: int,
) -> list[Contest]:
    figures: list[tuple[str, str, bool, int, Callable[[Round], float]]] = [
        (f"{at_once} at once", "steps/s", False, 0, lambda one: one.together),
        ("one at a time, p50", "ms", True, 1, lambda one: _percentile(one.alone, 50)),
        ("one at a time, p95", "ms", True, 1, lambda one: _percentile(one.alone, 95)),
        (f"{at_once} at once, p50", "ms", True, 2, lambda one: _percentile(one.latencies, 50)),
        (f"{at_once} at once, p95", "ms", True, 2, lambda one: _percentile(one.latencies, 95)),
    ]
    if store == "PostgreSQL":
        what = "transactions of the database for a step"
        figures.append((what, "transactions", True, 2, lambda one: one.transactions))
    contests = []
    for what, unit, less, aim, value in figures:
        entries = [
            Entry(who, [value(one) for one in found[who]], found[who][0].settings)
            for who in names
            if who in found and value(found[who][0])
        ]
        aims = [
            Aim(AIMS[store, who][aim], who) for who in names if aim < 2 and (store, who) in AIMS
        ]
        missing = {who: left_out[who] for who in names if who in left_out}
        contests.append(Contest(f"ten steps, {what}, {store}", unit, entries, less, aims, missing))
    return contests


def _percentile(latencies: list[float], part: int) -> float:
    return statistics.quantiles(latencies, n=100, method="inclusive")[part - 1] * 1000


# -- one round ------------------------------------------------------------------------------------


def _ours(arena: Arena, store: str) -> Round:
    sizes = (arena.size("at_once"), arena.size("batches"), arena.size("one_by_one"))
    found = _round(arena, ours("bench._our_steps", arena.place(store), *map(str, sizes)))
    if store != "PostgreSQL":
        return found
    # Transactions are counted over what the peers do, too: one batch, and as many one by one.
    place, sizes = arena.place(store), (sizes[0], 1, sizes[2])
    again = _round(arena, ours("bench._our_steps", place, *map(str, sizes)))
    counted = _counted(arena, place, again, sizes[0], sizes[2])
    return found._replace(transactions=counted.transactions, settings=counted.settings)


def _theirs(arena: Arena, who: str) -> Round:
    package, program, store = PEERS[who]
    place = arena.place(store).removeprefix("sqlite:///")
    if "WAL mode" in who:
        place = place.replace(".db", ".wal")
    # One batch of them takes longer than ten of ours.
    sizes = (arena.size("at_once"), 1, arena.size("one_by_one"))
    extra = ["threads"] if who.endswith("threads") else []
    found = _round(arena, theirs(package, program, place, *map(str, sizes), *extra))
    return _counted(arena, place, found, sizes[0], sizes[2])


def _restate(arena: Arena) -> Round:
    with restate(arena.folder) as (server, _):
        sizes = (arena.size("at_once"), 3, arena.size("one_by_one"))
        command = theirs("restate", "restate_steps", server.ingress, *map(str, sizes))
        return _round(arena, command)


def _round(arena: Arena, command: list[str]) -> Round:
    [found] = told([command], arena.folder)
    together = found["together"]
    speed = len(together["latencies"]) * STEPS / together["seconds"]
    return Round(speed, found["alone"]["latencies"], together["latencies"], found["settings"])


def _counted(arena: Arena, place: str, round: Round, at_once: int, one: int) -> Round:
    """With the transactions that the database has seen for a batch, so many one by one and the warm-up,
    the making of its tables included."""
    if not place.startswith("postgresql:"):
        return round
    databases = arena.postgres()
    workflows = 1 + min(at_once, WARM) + at_once + one
    count = asyncio.run(databases.transactions(place)) / (workflows * STEPS)
    return round._replace(transactions=count, settings=asyncio.run(databases.settings()))


# -- several processes ----------------------------------------------------------------------------


def processes(arena: Arena) -> list[Contest]:
    """Steps a second of all, from the word to go until the last has done."""
    contests = []
    for store in STORES:
        found, _ = arena.alternate(
            {
                f"outlast, {store}, {_counted_in_words(number)}": partial(
                    _side, arena, store, number
                )
                for number in PROCESSES
            },
            min(arena.rounds, MANY),
        )
        entries = [
            Entry(who, [one.together for one in rounds], rounds[0].settings)
            for who, rounds in found.items()
        ]
        name = f"ten steps, {arena.size('at_once')} at once in each process, {store}"
        contests.append(Contest(name, "steps/s", entries, grows=True))
    return contests


def _counted_in_words(number: int) -> str:
    return f"{number} process{'es' if number > 1 else ''}"


def _side(arena: Arena, store: str, number: int) -> Round:
    place = arena.place(store)
    if number > 1:  # one of them makes the tables
        told([ours("bench._our_steps", place, "1", "1", "0")], arena.folder)
    batches = max(arena.size("batches") // 2, 1)
    command = ours("bench._our_steps", place, str(arena.size("at_once")), str(batches), "0")
    sides = told([command] * number, arena.folder)
    slowest = max(one["together"]["seconds"] for one in sides)
    steps = sum(len(one["together"]["latencies"]) for one in sides) * STEPS
    return Round(steps / slowest, [], [], sides[0]["settings"])
