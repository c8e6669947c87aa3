"""Appends: callers of a journal on the store, next to the bare loops."""

from __future__ import annotations

import asyncio
import time

from msgspec import Raw

from bench._bare import BareLoop
from bench._table import Line, made_ready
from outlast.engine.journal import Journal
from outlast.model import Commit, Event, Hold, Run, new_id
from outlast.ports.store import Store
from outlast.stores.sqlite import SqliteStore

CALLERS = (1, 16, 128)
APPENDS = {  # how many, by events in each and callers: enough for some tenths of a second
    1: {1: 400, 16: 1_600, 128: 6_400},
    10: {1: 300, 16: 800, 128: 2_560},
    100: {1: 100, 16: 320, 128: 640},
}
AIMS = {1: 1 / 1.5, 128: 0.6}  # by callers


async def measure_appends(store: SqliteStore, bare: BareLoop, rounds: int) -> list[Line]:
    """Events per second, by events in a commit and number of callers."""
    lines = []
    for size, counts in APPENDS.items():
        for callers in CALLERS:
            each = counts[callers] // callers
            events = each * callers * size
            per = 1 if callers == 1 else 100
            ours: list[float] = []
            theirs: dict[bool, list[float]] = {False: [], True: []}
            for _ in range(rounds):
                ours.append(events / await _append(store, callers, each, size))
                for fenced, speeds in theirs.items():
                    ready = bare.prepare([some_events("bare", each, size) for _ in range(callers)])
                    with made_ready():
                        seconds = bare.run(ready, per_transaction=per, fenced=fenced)
                    speeds.append(events / seconds)
            name = f"append, {callers} callers, {size} events a commit"
            lines += [
                Line(
                    f"{name}, against {what}",
                    "events/s",
                    ours,
                    theirs[fenced],
                    f"{per} a transaction:",
                    AIMS.get(callers),
                )
                for fenced, what in ((False, "bare events"), (True, "bare fenced"))
            ]
    return lines


async def _append(store: SqliteStore, callers: int, each: int, size: int) -> float:
    """Seconds until every one of so many callers has made its appends."""
    scripts = [await script(store, each, size) for _ in range(callers)]
    journal = Journal(store)

    async def call(commits: list[Commit]) -> None:
        for commit in commits:
            await journal.commit(commit)

    with made_ready():
        begun = time.perf_counter()
        await asyncio.gather(*(call(commits) for commits in scripts))
        return time.perf_counter() - begun


async def script(store: Store, each: int, size: int) -> list[Commit]:
    """A new run under a claim, and what its caller is going to commit."""
    run = Run(id=new_id(), workflow="bench")
    begin = Commit(run_id=run.id, create=run, hold=Hold("bench", 3600.0))
    token = (await Journal(store).commit(begin)).token
    return [
        Commit(
            run_id=run.id,
            uid=run.uid,
            expected=number * size,
            token=token,
            events=tuple(events),
        )
        for number, events in enumerate(some_events(run.id, each, size))
    ]


def some_events(run_id: str, each: int, size: int) -> list[list[Event]]:
    """The events of so many appends, `size` in each."""
    return [[an_event(run_id, number) for number in range(size)] for _ in range(each)]


def an_event(run_id: str, number: int) -> Event:
    """An event as a step leaves it."""
    data = b'{"step": "charge-card", "attempt": 1, "number": %d}' % number
    return Event(
        type="step.completed",
        run_id=run_id,
        step_name="charge-card",
        data=Raw(data),
        output=Raw(b'{"receipt": "r-123", "cents": 1999}'),
    )
