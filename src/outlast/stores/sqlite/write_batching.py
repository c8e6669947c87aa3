"""WriteBatcher: small writes in the same turn of an event loop share a transaction, and one sync.

::

    the first of a turn ────▶ at once: most come alone
    those that follow it ───▶ the end of the turn ─▶ one transaction, one sync for all of them

Without it, a hundred callers would wait for a hundred syncs, one after the other. Callers that shared
a transaction resume in the same turn, so the next turn is a batch from its first write on.

Each write of a batch is a savepoint. One that fails is rolled back alone. If the COMMIT fails, all of
them have failed. At a few errors SQLite rolls back the whole transaction by itself: then the write
that caused it fails, and the others are repeated in another transaction.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import Busy, TimedOut
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.connection_worker import AwaitedJob, Error, Job, Work
from outlast.stores.sqlite.driver_errors import translate

Batch = list[AwaitedJob]

MAX_INLINE_WRITES = 256
"""Rows that a transaction in the event loop may write: about two milliseconds' worth."""


class WriteBatcher:
    """Collects the writes of a turn, for each event loop. `write` returns the jobs that it had no time
    for."""

    def __init__(self, write: Callable[[Batch], Batch]) -> None:
        self._write = write
        self._batches: dict[asyncio.AbstractEventLoop, Batch] = {}

    def here(self) -> Batch | None:
        """The batch to join; None for the first write of a turn, and outside an event loop: run at
        once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        batch = self._batches.get(loop)
        if batch is None:
            for other in list(self._batches):
                if other.is_closed():
                    self._batches.pop(other, None)
            self._begin(loop, [])
        return batch

    def _begin(self, loop: asyncio.AbstractEventLoop, batch: Batch) -> None:
        # In this order: after Ctrl-C between the two lines no batch waits for a callback that never
        # runs. An empty context, because the variables of one caller are not those of the others.
        loop.call_soon(self._end_of_turn, loop, context=Context())
        self._batches[loop] = batch

    def _end_of_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        batch = self._batches.pop(loop, [])
        some = first_part(batch)
        if not some:
            return
        left: Batch = []
        try:
            left = self._write(some)
        finally:
            if len(batch) > 1:  # after the callers that resume now
                self._begin(loop, left + batch[len(some) :])


def first_part(batch: Batch) -> Batch:
    """As many jobs as a transaction in the event loop may take."""
    rows = 0
    for number, job in enumerate(batch):
        rows += job.rows
        if number and rows > MAX_INLINE_WRITES:
            return batch[:number]
    return batch


J = TypeVar("J", bound=Job)


def run_together(
    jobs: Sequence[J],
    db: Connection,
    transaction: AbstractContextManager[None],
    path: Path,
    *,
    seconds: float | None,
) -> list[tuple[J, Any, Error]]:
    """Run jobs in one transaction. Returns the ends of at least one; jobs that are missing in them were
    not run and can be repeated. After `seconds` no further job starts. Raises `Busy` if the lock is
    taken and no job has started."""
    ends: list[tuple[J, Any, Error]] = []
    started: list[J] = []
    do = _in_savepoint if len(jobs) > 1 else _alone
    try:
        with transaction:
            until = None if seconds is None else time.perf_counter() + seconds
            for job in jobs:
                if job.begin():
                    started.append(job)
                    result, failure = do(db, job.work, path)
                    ends.append((job, result, failure))
                else:
                    ends.append((job, None, TimedOut("abandoned")))  # its caller is gone
                if until is not None and time.perf_counter() > until:
                    break
        return ends
    except _RolledBack as taken:
        culprit = started.pop()
        for job in started:
            job.reset()
        return [(culprit, None, taken.error)]
    except Exception as caught:  # noqa: BLE001 - it fails all of them
        error = _translated(caught, path)
        if isinstance(error, Busy) and not started:
            raise error from error.__cause__
        return [(job, None, error) for job in jobs]


def remaining(jobs: Sequence[J], ends: Sequence[tuple[J, Any, Error]]) -> list[J]:
    """The jobs without an end yet."""
    ended = {job for job, _, _ in ends}
    return [job for job in jobs if job not in ended]


class _RolledBack(Exception):
    """SQLite has rolled back the whole transaction because of one job."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _in_savepoint(db: Connection, work: Work[Any], path: Path) -> tuple[Any, Exception | None]:
    """Result and error of one job; after an error the transaction is as it was before."""
    db.execute("SAVEPOINT one")
    try:
        result = work(db)
    except Exception as caught:  # noqa: BLE001 - the other jobs continue
        error = _translated(caught, path)
        try:
            db.execute("ROLLBACK TO one")
            db.execute("RELEASE one")
        except Exception:  # noqa: BLE001 - SQLite has rolled back all of it
            raise _RolledBack(error) from caught
        return None, error
    db.execute("RELEASE one")
    return result, None


def _alone(db: Connection, work: Work[Any], _: Path) -> tuple[Any, None]:
    return work(db), None


def _translated(caught: Exception, path: Path) -> Exception:
    error = translate(caught, path)
    if error is None:
        return caught
    error.__cause__ = caught
    return error
