"""Ten-step workflows, many at once and one at a time, in outlast on each store and in all peers.

race       100 at once and one at a time: steps a second, p50 and p95 of a workflow, and on PostgreSQL
           the transactions that the database has seen for a step
crowd      500 at once: of the peers the fastest alone
processes  1, 2 and 4 worker processes on one store, 100 at once in each: steps a second of all

The step adds one to a number. Each contestant is a process of its own on a new and empty store
(Restate: three), and all run the same race, bench/peers/_clock.py. Peers stand next to us on the store
that they use; Restate, which has a log of its own, next to us on every store, and DBOS, which cannot use
Redis, next to us on Redis.

    ./dev bench steps [--rounds 3] [--only race] [--at-once 100] [--alone] [--json FILE] [--plot FOLDER]
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from bench._aims import SOONER as SOONER_THAN_DBOS
from bench._aims import TIMES_DBOS, TIMES_RESTATE
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
BEST = ["DBOS, SQLite in WAL mode, 8 threads", "DBOS, PostgreSQL, 8 threads", "Absurd, PostgreSQL"]
"""Who take part in a crowd, besides Restate: the best of them, since they take long."""

ELSEWHERE = {  # whoever has a store of its own stands next to ours, too
    "SQLite": ["Restate"],
    "PostgreSQL": ["Restate"],
    "Redis": [who for who in PEERS if who.startswith("DBOS")] + ["Restate"],
}
THEIR_BATCHES = 1
"""Of most peers: one takes longer than ten of ours."""

RESTATE_BATCHES = 3
"""Of Restate, at most."""

PACKAGES = ("dbos", "restate", "absurd", "langgraph", "sayiir")

FASTER = {"DBOS": TIMES_DBOS, "Restate": TIMES_RESTATE}
SOONER = {"DBOS": SOONER_THAN_DBOS, "Restate": dict.fromkeys(STORES, 1)}
"""How many times, by peer and store."""


class Sizes(NamedTuple):
    """Workflows at once, how many times, and one by one."""

    at_once: int
    batches: int
    one_by_one: int


class Round(NamedTuple):
    """What one round found. `transactions` of the database for a step; 0 if nobody counted."""

    together: float
    alone: list[float]
    latencies: list[float]
    settings: str
    transactions: float = 0.0


class Figure(NamedTuple):
    """One that is shown: its name, its unit, how it is found, and how many times better ours should be."""

    name: str
    unit: str
    value: Callable[[Round], float]
    wanted: dict[str, dict[str, int]] | None = None

    @property
    def less(self) -> bool:
        """Whether less is better."""
        return self.unit != "steps/s"


def main(argv: list[str]) -> int:
    """Measure."""
    sizes = {
        "at_once": Size(100, 100, "workflows at once"),
        "crowd": Size(500, 500, "workflows at once in a crowd"),
        "batches": Size(10, 10, "times that many, of ours in a round"),
        "one_by_one": Size(30, 100, "workflows one at a time"),
    }
    parts = {"race": race, "crowd": crowd, "processes": processes}
    return compete(__name__, argv, parts, rounds=3, sizes=sizes, peers=PACKAGES)


def race(arena: Arena) -> list[Contest]:
    """All against all."""
    sizes = Sizes(*map(arena.size, ("at_once", "batches", "one_by_one")))
    return _raced(arena, sizes, (*STORES, "memory"), list(PEERS))


def crowd(arena: Arena) -> list[Contest]:
    """More of them at once, and none one by one; as many of ours in all."""
    at_once = arena.size("crowd")
    batches = max(arena.size("batches") * arena.size("at_once") // at_once, 1)
    return _raced(arena, Sizes(at_once, batches, 0), STORES, BEST)


def _raced(arena: Arena, sizes: Sizes, stores: tuple[str, ...], peers: list[str]) -> list[Contest]:
    contestants: dict[str, Callable[[], Round]] = {
        f"outlast, {store}": partial(_ours, arena, store, sizes) for store in stores
    }
    if not arena.alone:
        contestants |= {who: partial(_theirs, arena, who, sizes) for who in peers}
        contestants["Restate"] = partial(_restate, arena, sizes)
    found, left_out = arena.alternate(contestants)
    contests: list[Contest] = []
    for store in STORES:
        names = [who for who, (_, _, place) in PEERS.items() if place == store]
        entries = [f"outlast, {store}", *names, *ELSEWHERE[store]]
        if store == "SQLite":
            entries.append("outlast, memory")
        contests += _contests(store, entries, found, left_out, sizes)
    return contests


def _contests(
    store: str,
    names: list[str],
    found: dict[str, list[Round]],
    left_out: dict[str, str],
    sizes: Sizes,
) -> list[Contest]:
    many = f"{sizes.at_once} at once"
    figures = [Figure(many, "steps/s", lambda one: one.together, FASTER)]
    if sizes.one_by_one:
        figures += [
            Figure("one at a time, p50", "ms", lambda one: _percentile(one.alone, 50), SOONER),
            Figure("one at a time, p95", "ms", lambda one: _percentile(one.alone, 95), SOONER),
        ]
    figures += [
        Figure(f"{many}, p50", "ms", lambda one: _percentile(one.latencies, 50)),
        Figure(f"{many}, p95", "ms", lambda one: _percentile(one.latencies, 95)),
    ]
    if store == "PostgreSQL" and sizes.one_by_one:
        what = "transactions of the database for a step"
        figures.append(Figure(what, "transactions", lambda one: one.transactions))
    contests = []
    for figure in figures:
        entries = [
            Entry(who, [figure.value(one) for one in found[who]], found[who][0].settings)
            for who in names
            if who in found and figure.value(found[who][0])
        ]
        aims = [
            Aim(times[store], who)
            for peer, times in (figure.wanted or {}).items()
            for who in names
            if who.startswith(peer) and store in times and (who in found or who in left_out)
        ]
        missing = {who: left_out[who] for who in names if who in left_out}
        name = f"ten steps, {figure.name}, {store}"
        contests.append(Contest(name, figure.unit, entries, figure.less, aims, missing))
    return contests


def _percentile(latencies: list[float], part: int) -> float:
    return statistics.quantiles(latencies, n=100, method="inclusive")[part - 1] * 1000


# -- one round ------------------------------------------------------------------------------------


def _ours(arena: Arena, store: str, sizes: Sizes) -> Round:
    found = _round(arena, ours("bench._our_steps", arena.place(store), *map(str, sizes)))
    if store != "PostgreSQL" or not sizes.one_by_one:
        return found
    # Transactions are counted over what the peers do, too: one batch, and as many one by one.
    place, sizes = arena.place(store), sizes._replace(batches=THEIR_BATCHES)
    again = _round(arena, ours("bench._our_steps", place, *map(str, sizes)))
    counted = _counted(arena, place, again, sizes)
    return found._replace(transactions=counted.transactions, settings=counted.settings)


def _theirs(arena: Arena, who: str, sizes: Sizes) -> Round:
    package, program, store = PEERS[who]
    place = arena.place(store).removeprefix("sqlite:///")
    if "WAL mode" in who:
        place = place.replace(".db", ".wal")
    sizes = sizes._replace(batches=THEIR_BATCHES)
    extra = ["threads"] if who.endswith("threads") else []
    found = _round(arena, theirs(package, program, place, *map(str, sizes), *extra))
    return _counted(arena, place, found, sizes)


def _restate(arena: Arena, sizes: Sizes) -> Round:
    sizes = sizes._replace(batches=min(sizes.batches, RESTATE_BATCHES))
    with restate(arena.folder) as (server, _):
        command = theirs("restate", "restate_steps", server.ingress, *map(str, sizes))
        return _round(arena, command)


def _round(arena: Arena, command: list[str]) -> Round:
    [found] = told([command], arena.folder)
    together = found["together"]
    speed = len(together["latencies"]) * STEPS / together["seconds"]
    return Round(speed, found["alone"]["latencies"], together["latencies"], found["settings"])


def _counted(arena: Arena, place: str, round: Round, sizes: Sizes) -> Round:
    """With the transactions that the database has seen for all batches, those one by one and the warm-up,
    the making of its tables included."""
    if not place.startswith("postgresql:"):
        return round
    databases = arena.postgres()
    workflows = 1 + min(sizes.at_once, WARM) + sizes.at_once * sizes.batches + sizes.one_by_one
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
