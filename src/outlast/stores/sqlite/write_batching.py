"""WriteBatcher: small writes that come in the same turn of an event loop share a transaction.

::

    the first of a turn ──────▶ here and now: most come alone
    those that come behind it ─▶ the end of the turn ─▶ one transaction, one sync for all of them

A hundred callers that wait for a write each would wait for a hundred syncs, one after the other. Those who
shared one come back together, so the turn after a crowd is a crowd from its first on.

Sharing: several jobs in one transaction, each a savepoint of it.

One that fails is taken back, and the others go on; what they share is the sync at the end. If that fails,
all of them have failed. At a few errors SQLite takes back the whole transaction by itself: the one that
made it do so is told, and the others are done again in another one.
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

Crowd = list[AwaitedJob]

SMALL = 256
"""Rows that a transaction in the event loop may write: about two milliseconds' worth."""


class WriteBatcher:
    """Those who wait for the end of their turn, of each loop. Each loop sees only its own. `write` gives
    back those for whom there was no time."""

    def __init__(self, write: Callable[[Crowd], Crowd]) -> None:
        self._write = write
        self._crowds: dict[asyncio.AbstractEventLoop, Crowd] = {}

    def here(self) -> Crowd | None:
        """Where to wait; None for the first of a turn, and for plain code, which go at once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        crowd = self._crowds.get(loop)
        if crowd is None:
            for other in list(self._crowds):
                if other.is_closed():  # in the midst of a turn
                    self._crowds.pop(other, None)
            self._begin(loop, [])
        return crowd

    def _begin(self, loop: asyncio.AbstractEventLoop, crowd: Crowd) -> None:
        # In this order, so that after Ctrl-C between the two nobody waits for an end that never comes.
        # The context is nobody's: what it carries belongs to one caller, not to all of them.
        loop.call_soon(self._end_of_turn, loop, context=Context())
        self._crowds[loop] = crowd

    def _end_of_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        crowd = self._crowds.pop(loop, [])
        some = first_of(crowd)
        if not some:
            return
        left: Crowd = []
        try:
            left = self._write(some)
        finally:
            if len(crowd) > 1:  # behind those who were told just now
                self._begin(loop, left + crowd[len(some) :])


def first_of(crowd: Crowd) -> Crowd:
    """As many as a transaction in the loop may take."""
    rows = 0
    for number, job in enumerate(crowd):
        rows += job.rows
        if number and rows > SMALL:
            return crowd[:number]
    return crowd


J = TypeVar("J", bound=Job)


def share(
    jobs: Sequence[J],
    db: Connection,
    transaction: AbstractContextManager[None],
    path: Path,
    *,
    seconds: float | None,
) -> list[tuple[J, Any, Error]]:
    """What came of them, of one at least: those that are not named were not done, and can be done later.
    When their statements have taken so many seconds, no more begin. `Busy` if a lock is taken, and none
    has begun."""
    ends: list[tuple[J, Any, Error]] = []
    begun: list[J] = []
    do = _saved if len(jobs) > 1 else _alone
    try:
        with transaction:
            until = None if seconds is None else time.perf_counter() + seconds
            for job in jobs:
                if job.begin():
                    begun.append(job)
                    result, failure = do(db, job.work, path)
                    ends.append((job, result, failure))
                else:
                    ends.append((job, None, TimedOut("given up")))  # nobody hears it
                if until is not None and time.perf_counter() > until:
                    break
        return ends
    except _TakenBack as taken:
        culprit = begun.pop()
        for job in begun:
            job.put_off()
        return [(culprit, None, taken.error)]
    except Exception as caught:  # noqa: BLE001 - whatever it is, it is the end of all of them
        error = _meaning(caught, path)
        if isinstance(error, Busy) and not begun:
            raise error from error.__cause__
        return [(job, None, error) for job in jobs]


def left_of(jobs: Sequence[J], ends: Sequence[tuple[J, Any, Error]]) -> list[J]:
    """Those of whom nothing is known yet."""
    told = {job for job, _, _ in ends}
    return [job for job in jobs if job not in told]


class _TakenBack(Exception):
    """One of them has failed in such a way that all of it is undone."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _saved(db: Connection, work: Work[Any], path: Path) -> tuple[Any, Exception | None]:
    """What came of one of them; if it has failed, the transaction is as it was before."""
    db.execute("SAVEPOINT one")
    try:
        result = work(db)
    except Exception as caught:  # noqa: BLE001 - whatever it is, the others go on
        error = _meaning(caught, path)
        try:
            db.execute("ROLLBACK TO one")
            db.execute("RELEASE one")
        except Exception:  # noqa: BLE001 - SQLite has rolled back all of it
            raise _TakenBack(error) from caught
        return None, error
    db.execute("RELEASE one")
    return result, None


def _alone(db: Connection, work: Work[Any], _: Path) -> tuple[Any, None]:
    return work(db), None


def _meaning(caught: Exception, path: Path) -> Exception:
    error = translate(caught, path)
    if error is None:
        return caught
    error.__cause__ = caught
    return error
