"""Recipes: what to commit, drawn by Hypothesis before it is known what the stores hold.

A recipe says "the right sequence" or "a stale token"; the machine looks up which that is when its
turn comes, once for each store. All names come from small pools, so that things meet.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec import Raw, Struct

from outlast.model.commit import Creation
from outlast.model.run import Status
from outlast.model.run_contents import Fact

T = TypeVar("T")

ROOTS = ("a", "b", "c")
RUNS = (*ROOTS, "a~1", "a~2", "b~1")
OWNERS = ("w1", "w2")
WORKFLOWS = ("order", "refund")
QUEUES = ("default", "slow")
TASKS = (("default", "t1"), ("default", "t2"), ("slow", "s1"))
TIMERS = ("x", "y")
ITEMS = ("i1", "i2", "i3")
ADDRESSES = ("a", "a", "a~1", "b", "c", "ghost")
ACTIVITIES = ("p", "q")
KEYS = (("start", "k1"), ("start", "k2"), ("job", "k1"))
FACTS = (Fact.of(b""), Fact.of(bytes(range(256))))
SECONDS = (0.001, 1.0, 5.0, 31.0, 3600.0)
TTLS = (5.0, 30.0)

# Two births at one moment tie in the order of a search.
LONG_AGO = datetime(2029, 1, 1, tzinfo=UTC)
TEXT = Raw(b'{"t": "\\u0000\\ud83d\\ude00 \xc3\xa9", "n": 1.0, "big": 123456789012345678901}')
RECORDS: tuple[dict[str, Any], ...] = (
    {},
    {"workflow": "order", "attributes": {"n": 1}, "input": TEXT},
    {"workflow": "order", "attributes": {"n": True, "s": "1"}, "created_at": LONG_AGO},
    {"workflow": "refund", "attributes": {"n": 1.0}, "created_at": LONG_AGO, "priority": 3},
    {"workflow": "refund", "version": 2, "definition": "d", "queue": "slow", "ctx": {"k": TEXT}},
)
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"ctx": {"k": TEXT, "": Raw(b"null")}, "attributes": {"n": 1, "é": "x"}},
    {"result": TEXT, "error": "boom\x00", "current_step": "s", "recover_to": "r"},
    {"ctx": {}, "attributes": {}, "result": None, "error": None, "halt_data": None},
    {"workflow": "refund", "version": "2", "wait_kind": "timer", "halt_data": Raw(b"0")},
    {"input": None, "definition": "d2", "priority": -1, "queue": "slow", "current_step": None},
)


class Recipe(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One commit to be. The words are resolved by `CommitPairs`."""

    run: str
    token: str = "current"  # none, stale, bogus
    expected: str = "any"  # right, wrong
    revision: str = "any"
    life: str = "any"
    force: bool = False
    create: Creation | None = None
    carry: bool = False
    hold: bool = False
    record: int = 0
    born: Status = Status.PENDING
    due: str = "now"  # park, later: when a run that begins may be claimed
    events: int = 0
    repeat: bool = False
    change: int | None = None
    status: Status | None = None
    runnable: str = "keep"  # park, now, later
    consume: str = "none"  # first, all, wrong
    seen: str = "consumed"  # none, all
    release: bool = False
    sends: tuple[tuple[str, str, str], ...] = ()  # run, item, life
    starts: tuple[str, ...] = ()
    tasks: tuple[tuple[int, int, float], ...] = ()  # which, priority, delay
    finish: str = "none"  # latest, oldest
    drops: tuple[str, ...] = ()
    timers: tuple[tuple[str, float], ...] = ()
    fired: tuple[str, ...] = ()
    facts: tuple[int, ...] = ()
    entries: int = 0
    old_entries: bool = False
    activities: tuple[str, ...] = ()
    snapshot: bool = False


def rarely(value: T, otherwise: T) -> st.SearchStrategy[T]:
    """`value` in one of six, `otherwise` in the rest."""
    return st.sampled_from([otherwise] * 5 + [value])


def some(strategy: st.SearchStrategy[T], most: int = 2) -> st.SearchStrategy[tuple[T, ...]]:
    """None in most cases, else a few different ones."""
    few = st.lists(strategy, min_size=1, max_size=most, unique=True).map(tuple)
    return st.one_of(st.just(()), st.just(()), few)


def words(*choices: str) -> st.SearchStrategy[str]:
    """One of these words; repeat one to make it likelier."""
    return st.sampled_from(choices)


runs = st.sampled_from(RUNS)
statuses = st.sampled_from(tuple(Status))
open_statuses = st.sampled_from([one for one in Status if not one.terminal])
CONDITIONS: dict[str, st.SearchStrategy[Any]] = {
    "run": runs,
    "token": words(*["current"] * 8, "none", "stale", "bogus"),
    "expected": words("any", "any", "right", "right", "wrong"),
    "revision": words(*["any"] * 6, "right", "wrong"),
    "life": words(*["any"] * 6, "right", "wrong"),
    "force": rarely(True, False),
}
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "events": st.sampled_from([0, 1, 1, 2, 3]),
    "repeat": rarely(True, False),
    "change": st.none() | st.integers(0, len(CHANGES) - 1),
    "status": st.none() | open_statuses | st.sampled_from([Status.RUNNING, Status.COMPLETED]),
    "runnable": words("keep", "keep", "park", "park", "now", "later"),
    "consume": words("none", "none", "first", "all", "wrong"),
    "seen": words("consumed", "none", "all"),
    "release": st.booleans(),
    "sends": some(
        st.tuples(
            st.sampled_from(ADDRESSES),
            st.sampled_from(ITEMS),
            words("any", "any", "right", "wrong"),
        )
    ),
    "starts": some(st.sampled_from(["1", "2", "own"])),
    "tasks": some(
        st.tuples(
            st.integers(0, len(TASKS) - 1),
            st.sampled_from([0, 0, -1]),
            st.sampled_from([0.0, 10.0]),
        )
    ),
    "finish": words("none", "none", "latest", "oldest"),
    "drops": some(st.sampled_from([id for _, id in TASKS])),
    "timers": some(st.tuples(st.sampled_from(TIMERS), st.sampled_from([0.0, 4.0, 100.0]))),
    "fired": some(st.sampled_from([*TIMERS, "none"])),
    "facts": some(st.integers(0, len(FACTS) - 1)),
    "entries": st.sampled_from([0, 0, 1, 2]),
    "old_entries": st.booleans(),
    "activities": some(st.sampled_from(ACTIVITIES)),
    "snapshot": rarely(True, False),
}
BIRTH: dict[str, st.SearchStrategy[Any]] = {
    "create": st.sampled_from([Creation.NEW, Creation.NEW, Creation.UPSERT, Creation.REPLACE]),
    "carry": st.booleans(),
    "hold": st.booleans(),
    "record": st.integers(0, len(RECORDS) - 1),
    "born": st.sampled_from([*[Status.PENDING] * 6, Status.RUNNING, Status.FAILED]),
    "due": words("now", "now", "park", "later"),
}


def recipes(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Recipe]:
    """Recipes with these parts and every kind of condition."""
    return st.builds(Recipe, **{**CONDITIONS, **parts})


def only(*names: str) -> st.SearchStrategy[Recipe]:
    """Recipes with the parts of these names."""
    return recipes(**{name: PARTS[name] for name in names})


mixed = recipes(**PARTS)
births = recipes(**BIRTH, events=PARTS["events"], consume=PARTS["consume"], seen=PARTS["seen"])
full_births = recipes(**BIRTH, **PARTS)


def later(now: datetime, seconds: float) -> datetime:
    """A moment after `now`."""
    return now + timedelta(seconds=seconds)
