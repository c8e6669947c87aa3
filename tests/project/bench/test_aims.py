"""Aims are judged from the results, and by the worst of what they are about."""

from __future__ import annotations

import json
import re
from typing import Any

from bench._aims import AIMS, Found, Wanted, better, judge, rows
from bench._table import Contest, Entry, as_json

MANY = r"ten steps, \d+ at once, SQLite"


def results(*contests: Contest, workload: str = "steps") -> dict[str, Any]:
    """As they come out of a file."""
    found = {workload: {"race": {"contests": [as_json(one) for one in contests], "failed": ""}}}
    read: dict[str, Any] = json.loads(json.dumps(found))
    return read


def judged(wanted: Wanted, *contests: Contest) -> Found:
    """What decides about an aim that was measured."""
    found = judge(wanted, results(*contests))
    assert found is not None
    return found


def steps(ours: float, **others: float) -> Contest:
    """Ten steps on SQLite, of ours and of others."""
    entries = [Entry("outlast, SQLite", [ours], "synced")]
    entries += [Entry(who.replace("_", ", "), [value], "too") for who, value in others.items()]
    return Contest("ten steps, 100 at once, SQLite", "steps/s", entries)


GROWN = Contest(
    "among so many runs: ten steps, SQLite",
    "ms",
    [Entry(f"outlast, {count} runs", [took]) for count, took in ((1, 2.0), (10, 3.0), (100, 7.0))],
    less=True,
    grows=True,
)


def test_a_peers_best_setting_decides() -> None:
    """Twice as fast as one of them is not enough if another one is nearly as fast as we are."""
    peers = {"DBOS_slow": 20.0, "DBOS_fast": 80.0, "Restate": 100.0}
    found = judged(Wanted("2 × DBOS", "steps", MANY, 2.0, "DBOS"), steps(100.0, **peers))
    assert (found.figure, found.is_reached) == ("1.25 ×", False)
    assert "outlast, SQLite 100 steps/s (synced); DBOS, fast 80.0 steps/s (too)" in found.reason


def test_a_figure_of_its_own_is_at_least_or_at_most() -> None:
    """As the contest has it: more is better, or less."""
    wanted = Wanted("so many", "steps", MANY, 100.0)
    assert not judged(wanted, steps(99.0)).is_reached
    assert judged(wanted, steps(100.0)).is_reached
    none = Contest("begun again", "steps", [Entry("outlast", [0.0])], less=True)
    some = Contest("begun again", "steps", [Entry("outlast", [1.0])], less=True)
    wanted = Wanted("none", "steps", "begun again", 0.0)
    assert judged(wanted, none).is_reached
    assert not judged(wanted, none, some).is_reached


def test_growth_is_judged_by_the_most_that_it_grows() -> None:
    """The biggest ratio counts, and it may be at most so much."""
    found = judged(Wanted("flat", "steps", ".*", 2.0, "outlast"), GROWN)
    assert (found.figure, found.is_reached) == ("3.50 ×", False)
    assert judged(Wanted("flat", "steps", ".*", 4.0, "outlast"), GROWN).is_reached


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    """Every aim has its row, and the row says how to measure it."""
    told = list(rows({}))
    assert told[0] == f"0 of 0 aims that were measured are reached; {len(AIMS)} there are."
    assert len(told) == len(AIMS) + 4
    assert all("not measured | `./dev bench " in row for row in told[4:])


def test_a_missed_aim_comes_with_what_it_is_due_to() -> None:
    """The engine without a disk, and where the time goes."""
    shares = Contest(
        "where the time goes, 100 at once, SQLite",
        "% of the time",
        [Entry("outlast: engine", [60.0]), Entry("outlast: codec", [40.0])],
    )
    contest = steps(100.0, DBOS_slow=50.0)
    contest.entries.append(Entry("outlast, memory", [300.0], "not durable"))
    found = results(contest) | results(shares, workload="profile")
    [row] = [row for row in rows(found) if "the bar: 50 × DBOS" in row and "SQLite |" in row]
    assert "| 2.00 × | **missed** | outlast, SQLite 100 steps/s (synced); DBOS, slow" in row
    assert "; outlast, memory 300 steps/s (not durable); most of the time: engine 60 %" in row


def test_the_bar_shows_a_peer_as_it_comes_too() -> None:
    """Its best setting counts, and whoever has changed nothing finds that ratio as well."""
    contest = steps(100.0, DBOS_SQLite=4.0, DBOS_fast=50.0)
    [row] = [
        row for row in rows(results(contest)) if "the bar: 50 × DBOS" in row and "SQLite |" in row
    ]
    assert "| 2.00 × | **missed** |" in row
    assert "; 25.0 × DBOS, SQLite as it comes |" in row


def test_where_a_peer_is_better_is_told() -> None:
    """Peers alone: neither limits of the machine nor ourselves."""
    found = results(steps(100.0, DBOS_slow=50.0, Restate=400.0, bare=900.0), GROWN)
    assert list(better(found))[2:] == [
        "| ten steps, 100 at once, SQLite (steps/s) | Restate | 400 | 100 | 0.25 × | too |"
    ]
    assert list(better(results(steps(100.0, Restate=50.0)))) == ["*None.*"]


NAMES = """
ten steps, 100 at once, STORE
ten steps, 500 at once, STORE
ten steps, one at a time, p50, STORE
append, 1 event a commit, 100 callers, STORE
append, 100 events a commit, STORE
10,000 jobs added and done, as tasks, STORE
10,000 jobs added and done, as runs, STORE
500 workflows, kill -9, STORE: until all are done
500 workflows, kill -9, STORE: until all are done after the lease
500 workflows, kill -9, STORE: begun again though not running
resume a run of iterations of a loop
resume a run of steps in scopes
replay of 1,000 steps
map over 100,000 items, STORE, most memory
map over 100,000 items, STORE, runs
among so many runs: ten steps, STORE
a step after so many others, memory
a megabyte of what a step returns, STORE
a task when so many wait, STORE
2,500 children, 2 workers, STORE
2,500 children, 2 workers, STORE, steps run twice
"""


def test_an_aim_is_about_contests_that_there_are() -> None:
    """A pattern that fits no contest would leave its aim unmeasured for ever."""
    stores = ("SQLite", "PostgreSQL", "Redis")
    known = {name.replace("STORE", store) for name in NAMES.splitlines() for store in stores}
    lost = [one.aim for one in AIMS if not any(re.fullmatch(one.contest, name) for name in known)]
    assert lost == []
