"""Appends of ours: callers of a journal, each on a run of its own that it holds a claim on."""

from __future__ import annotations

import asyncio
import time

from msgspec import Raw

from bench.peers._clock import made_ready
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.model import ClaimOnCreate, Commit, Event, Run, new_id
from outlast.ports.store import Store


async def append(store: Store, callers: int, each: int, size: int) -> float:
    """Seconds until every one of so many callers has made its appends, of `size` events each. What
    they commit is made before the clock starts."""
    scripts = [await script(store, each, size) for _ in range(callers)]
    journal = CommitBatcher(store)

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
    begin = Commit(run_id=run.id, create=run, hold=ClaimOnCreate("bench", 3600.0))
    token = (await CommitBatcher(store).commit(begin)).token
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
