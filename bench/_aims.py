"""What was asked for, set against the results: a row for each aim, with the figures that decide it.

An aim names contests by a pattern, and those that ours is compared with. The worst of them counts: the
best setting of a peer, the store that is slowest, the size that costs most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from bench._table import contests_of, in_range

Contest = dict[str, Any]
ENTRY = (
    r"^(DBOS|Restate|Absurd|LangGraph|sayiir|eventsourcing|celery|dramatiq|huey|procrastinate)\b"
)
"""Names of peers, as they stand in results."""


class Wanted(NamedTuple):
    """An aim. `than` are those that a ratio is taken against; without it the figure itself counts."""

    aim: str
    workload: str
    contest: str
    bound: float
    than: str = ""
    also: tuple[str, str] = ("", "")
    """Others whose ratios are shown and do not count, and what is said of them."""


class Found(NamedTuple):
    """The figure that decides, whether it will do, and where it comes from."""

    figure: str
    is_reached: bool
    reason: str
    distance: float
    """How many times more than is needed; below 1 it is missed."""


def _many(store: str) -> str:
    return rf"ten steps, \d+ at once, {store}"


def _alone(store: str) -> str:
    return rf"ten steps, one at a time, p50, {store}"


def _grouped(store: str) -> str:
    return rf"append, (1 event a commit, \d+ callers|100 events a commit), {store}"


AS_IT_COMES = (r"DBOS, (SQLite|PostgreSQL)$", " as it comes")

STORES = ("SQLite", "PostgreSQL", "Redis")
TIMES_DBOS = {"SQLite": 100, "PostgreSQL": 60, "Redis": 60}
TIMES_RESTATE = {"SQLite": 10, "PostgreSQL": 6, "Redis": 6}
MEGABYTES = 300
TIMES_LONGER = 2
REPLAYED = 40_000
FAMILY_SECONDS = 10
OF_BARE = 0.6
UNCHECKED, FENCED = "bare inserts, unchecked", "bare inserts, fenced"
"""Loops that appends are set against: that which checks nothing counts, the other is shown."""

SOONER = {"SQLite": 8, "PostgreSQL": 5}

AIMS = [
    *(
        Wanted(f"the bar: 50 × DBOS' steps a second, {store}", "steps", _many(store), 50, "DBOS", AS_IT_COMES)
        for store in STORES
    ),
    *(
        Wanted(f"{times} × DBOS' steps a second at its best setting, {store}", "steps", _many(store), times, "DBOS")
        for store, times in TIMES_DBOS.items()
    ),
    *(
        Wanted(f"{times} × Restate's steps a second, {store}", "steps", _many(store), times, "Restate")
        for store, times in TIMES_RESTATE.items()
    ),
    *(
        Wanted(f"one at a time, 1/{times} of DBOS' latency, {store}", "steps", _alone(store), times, "DBOS")
        for store, times in SOONER.items()
    ),
    *(
        Wanted(f"one at a time, ahead of Restate, {store}", "steps", _alone(store), 1, "Restate")
        for store in STORES
    ),
    *(
        Wanted(f"appends, 60 % of the bare group insert, {store}", "log", _grouped(store), OF_BARE, UNCHECKED, (FENCED, ""))
        for store in STORES
    ),
    *(
        Wanted(f"jobs as {way}, 3 × the best queue on {store}", "jobs", rf".* jobs added and done, as {way}, {store}", 3, ENTRY)
        for way in ("tasks", "runs")
        for store in STORES
    ),
    Wanted("recovery within 2 s where the store tells who is gone", "recovery", r".* kill -9, PostgreSQL: until all are done", 2),
    Wanted("recovery within the lease and 2 s elsewhere", "recovery", r".* kill -9, (SQLite|Redis): until all are done after the lease", 2),
    Wanted("steps repeated only if they were running", "recovery", r".*: begun again though not running", 0),
    *(
        Wanted(f"100,000 events of a {what} resume within 2 × of 1,000", "log", f"resume a run of {name}", TIMES_LONGER, r"outlast, 100,000 events")
        for what, name in {"loop": "iterations of a loop", "few scopes": "steps in scopes"}.items()
    ),
    Wanted("replay of 40,000 steps a second", "log", r"replay of .* steps", REPLAYED),
    Wanted("2,500 children by 2 workers on PostgreSQL in less than 10 s", "shared", r"2,500 children, 2 workers, PostgreSQL$", FAMILY_SECONDS),
    Wanted("no step of 2,500 children run twice", "shared", r"2,500 children, .*, steps run twice", 0),
    Wanted("a map of 100,000 items with less than 300 MB", "fan_out", r"map over 100,000 items, .*, most memory", MEGABYTES),
    Wanted("no run for an item of a map", "fan_out", r"map over .* items, .*, runs", 1),
    *(
        Wanted(f"growth: {what}, at most 2 ×", "growth", pattern, 2, "outlast")
        for what, pattern in {
            "a store with more runs": r"among so many runs: .*",
            "a longer history": r"a step after so many others, .*",
            "a megabyte of a bigger payload": r"a megabyte of what a step returns, .*",
            "a deeper backlog": r"a task when so many wait, .*",
        }.items()
    ),
]  # fmt: skip


def rows(results: dict[str, Any]) -> Iterator[str]:
    """The table of aims in Markdown."""
    found = [(wanted, judge(wanted, results)) for wanted in AIMS]
    judged = [one for _, one in found if one is not None]
    reached = sum(one.is_reached for one in judged)
    yield f"{reached} of {len(judged)} aims that were measured are reached; {len(AIMS)} there are."
    yield ""
    yield "| aim | figure | | from |"
    yield "|---|--:|---|---|"
    for wanted, one in found:
        if one is None:
            yield f"| {wanted.aim} | | not measured | `./dev bench {wanted.workload}` |"
        else:
            outcome = "reached" if one.is_reached else "**missed**"
            more = [*shown(wanted, results), *(() if one.is_reached else hints(wanted, results))]
            reason = "; ".join([one.reason, *more])
            yield f"| {wanted.aim} | {one.figure} | {outcome} | {reason} |"


def judge(wanted: Wanted, results: dict[str, Any]) -> Found | None:
    """What decides about an aim: the worst of all that it is about; None if nothing was measured."""
    found: list[Found] = []
    for contest in contests_of(results, wanted.workload):
        if re.fullmatch(wanted.contest, contest["name"]) and contest["entries"]:
            found += _compared(wanted, contest) if wanted.than else [_own(wanted, contest)]
    return min(found, key=lambda one: one.distance, default=None)


def shown(wanted: Wanted, results: dict[str, Any]) -> Iterator[str]:
    """Ratios that do not count, the worst of each: of a peer as it comes, of a loop that checks."""
    pattern, words = wanted.also
    worst: dict[str, float] = {}
    for contest in contests_of(results, wanted.workload) if pattern else ():
        if re.fullmatch(wanted.contest, contest["name"]):
            for entry in contest["entries"][1:]:
                if re.match(pattern, entry["who"]):
                    worst[entry["who"]] = min(entry["ratio"], worst.get(entry["who"], math.inf))
    for who, ratio in worst.items():
        yield f"{_number(ratio)} × {who}{words}"


def _own(wanted: Wanted, contest: Contest) -> Found:
    entry = contest["entries"][0]
    value, less = entry["value"], contest["less"]
    is_reached = value <= wanted.bound if less else value >= wanted.bound
    reason = f"{contest['name']}: {_told(entry, contest)}"
    figure = f"{_number(value)} {contest['unit']}"
    distance = _over(wanted.bound, value) if less else _over(value, wanted.bound)
    return Found(figure, is_reached, reason, distance)


def _compared(wanted: Wanted, contest: Contest) -> Iterator[Found]:
    first = contest["entries"][0]
    at_most = contest["grows"] and contest["less"]
    for entry in contest["entries"][1:]:
        if "ratio" not in entry or not re.match(wanted.than, entry["who"]):
            continue
        ratio = entry["ratio"]
        is_reached = ratio <= wanted.bound if at_most else ratio >= wanted.bound
        distance = _over(wanted.bound, ratio) if at_most else _over(ratio, wanted.bound)
        reason = f"{_told(first, contest)}; {_told(entry, contest)}"
        if contest["grows"]:
            reason = f"{contest['name']}: {reason}"
        yield Found(f"{_number(ratio)} ×", is_reached, reason, distance)


def _over(a: float, b: float) -> float:
    return a / b if b else 1.0 if a == b else float("inf")


def hints(wanted: Wanted, results: dict[str, Any]) -> Iterator[str]:
    """What a missed aim of the ten steps is due to: the engine without a disk, and the layers."""
    if wanted.workload != "steps":
        return
    is_alone = "one at a time" in wanted.contest
    how = "one at a time" if is_alone else "at once"
    for contest in contests_of(results, "steps"):
        if re.fullmatch(_alone("SQLite") if is_alone else _many("SQLite"), contest["name"]):
            for entry in contest["entries"]:
                if entry["who"] == "outlast, memory":
                    yield _told(entry, contest)
    for contest in contests_of(results, "profile"):
        if how in contest["name"] and wanted.contest.endswith("SQLite"):
            most = contest["entries"][:3]
            shares = (
                f"{one['who'].removeprefix('outlast: ')} {one['value']:.0f} %" for one in most
            )
            yield f"most of the time: {', '.join(shares)}"


def better(results: dict[str, Any]) -> Iterator[str]:
    """Where a peer is better than we are, in Markdown: every figure of a peer with a ratio below 1."""
    lines = []
    for workload in results:
        for contest in contests_of(results, workload):
            for entry in contest["entries"][1:]:
                if contest["grows"] or not re.match(ENTRY, entry["who"]) or entry["ratio"] >= 1:
                    continue
                first = contest["entries"][0]
                lines.append(
                    f"| {contest['name']} ({contest['unit']}) | {entry['who']} | "
                    f"{_number(entry['value'])} | {_number(first['value'])} | "
                    f"{_number(entry['ratio'])} × | {entry['settings']} |"
                )
    if not lines:
        yield "*No figure yet of a peer that is better.*" if not results else "*None.*"
        return
    yield "| figure | who | theirs | ours | ratio | under |"
    yield "|---|---|--:|--:|--:|---|"
    yield from lines


def _told(entry: dict[str, Any], contest: Contest) -> str:
    settings = f" ({entry['settings']})" if entry["settings"] else ""
    return f"{entry['who']} {_number(entry['value'])} {contest['unit']}{settings}"


def _number(value: float) -> str:
    return in_range(value, value, value, many=False)
