"""Many items, several processes that claim them: nobody gets what another has.

Runs are claimed in bulk, tasks one by one. The claimers begin together and go on until there is
nothing left; each answers with what it got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from outlast.model import Commit, Run, Task
from outlast.model.times import NOW
from outlast.stores.sqlite import SqliteQueue, SqliteStore
from tests.stores.sqlite_processes.crew import Crew

LEASE = 3600.0
BULK = 7  # no divisor of the number of items: the last claims are not full
QUEUE = "work"

Got = list[tuple[str, int]]
"""What a claimer got: ids and tokens."""


class Claims(NamedTuple):
    """Who got what."""

    items: set[str]
    got: list[Got]

    @property
    def twice(self) -> list[str]:
        """Items that were given to two, or twice to one."""
        ids = [id for got in self.got for id, _ in got]
        return sorted({id for id in ids if ids.count(id) > 1})

    @property
    def missed(self) -> list[str]:
        """Items that nobody got."""
        return sorted(self.items - {id for got in self.got for id, _ in got})

    @property
    def repeated_tokens(self) -> list[int]:
        """Tokens that fence nobody, because two have them."""
        tokens = [token for got in self.got for _, token in got]
        return sorted({token for token in tokens if tokens.count(token) > 1})

    def problems(self) -> list[str]:
        """What is wrong, in words."""
        found = []
        if self.twice:
            found.append(f"claimed twice: {self.twice[:10]}")
        if self.missed:
            found.append(f"never claimed: {self.missed[:10]}")
        if self.repeated_tokens:
            found.append(f"tokens given out twice: {self.repeated_tokens[:10]}")
        return found


def claim_runs(path: str, *, items: int, claimers: int) -> Claims:
    """Runs, by `claim_runs` in bulk."""

    async def prepare() -> set[str]:
        async with SqliteStore(path) as store:
            ids = [f"run-{number}" for number in range(items)]
            for start in range(0, items, 200):
                await store.commit(
                    [
                        Commit(run_id=id, create=Run(id=id, workflow="w", runnable_at=NOW))
                        for id in ids[start : start + 200]
                    ]
                )
        return set(ids)

    return Claims(asyncio.run(prepare()), _race(_claim_runs, path, claimers))


def take_tasks(path: str, *, items: int, claimers: int) -> Claims:
    """Tasks, by `Queue.take` one by one."""

    async def prepare() -> set[str]:
        async with SqliteQueue(path) as queue:
            tasks = [Task(id=f"task-{number}") for number in range(items)]
            await queue.enqueue(QUEUE, tasks)
        return {task.id for task in tasks}

    return Claims(asyncio.run(prepare()), _race(_take_tasks, path, claimers))


def _race(job: Callable[[Pipe, str, str], Got], path: str, claimers: int) -> list[Got]:
    crew = Crew()
    members = [crew.hire(job, path, f"claimer-{number}") for number in range(claimers)]
    crew.start_together()
    got: list[Got] = [crew.answer_of(member) for member in members]
    crew.dismiss()
    return got


def _claim_runs(pipe: Pipe, path: str, owner: str) -> Got:
    async def claim() -> Got:
        got: Got = []
        async with SqliteStore(path) as store:
            pipe.send("ready")
            pipe.recv()
            while claimed := await store.claim_runs(owner, LEASE, limit=BULK):
                got += [(one.run.id, one.claim.token) for one in claimed]
        return got

    return asyncio.run(claim())


def _take_tasks(pipe: Pipe, path: str, owner: str) -> Got:
    async def take() -> Got:
        got: Got = []
        async with SqliteQueue(path) as queue:
            pipe.send("ready")
            pipe.recv()
            while delivery := await queue.take(QUEUE, owner=owner, visibility=LEASE):
                got.append((delivery.task.id, delivery.claim.token))
                await queue.ack(delivery.claim)
        return got

    return asyncio.run(take())
