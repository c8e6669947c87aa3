"""Writer: one transaction at a time, in the event loop as long as that is fast.

A commit to a good disk takes a fraction of a millisecond, less than it takes to wake a thread and
come back; one to a slow disk must not hold up the loop. So the writer watches how long COMMIT takes
for small transactions. Above `SLOW` on average they go to the thread, until it is faster there; and
because a thread also waits for the interpreter when the loop is busy, one is tried in the loop again
once in a while.

BEGIN IMMEDIATE takes the lock before anything is read, so that what is decided holds when it is
written; and it is the only statement that can meet a lock of another process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from outlast.errors import Busy, StoreClosed, TimedOut, UnknownOutcome, UnsafeStorage
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.faults import is_harmless
from outlast.stores.sqlite.lane import AwaitedJob, Job, Lane, Work
from outlast.stores.sqlite.location import identity_of
from outlast.stores.sqlite.log import Log

T = TypeVar("T")
_logger = logging.getLogger("outlast.sqlite")

SLOW = 0.002
PROBE_SECONDS = 1.0
WEIGHT = 0.2  # of the last commit in the average
SPIKE = 4 * SLOW  # more than this counts as this: one hiccup of the disk is no reason to leave


class Writer(Lane):
    """The one connection of this process that writes."""

    def __init__(self, connection: Connection, path: Path, log: Log) -> None:
        self.pace = 0.0
        self._log = log
        self._file = identity_of(path)
        self._probe_at = 0.0
        self._is_folding = False
        super().__init__(connection, path, "writer")

    def is_quick(self) -> bool:
        return super().is_quick() and self._is_fast() and not self._log.is_overfull

    def foreign_version(self) -> int | None:
        """What SQLite says about commits of others, unless this connection is at work."""
        if not self._mutex.acquire(blocking=False):
            return None
        try:
            return int(scalar(self.connection, "PRAGMA data_version"))
        except Exception:  # noqa: BLE001 - it was only to look
            return None
        finally:
            self._mutex.release()

    def perform(self, work: Work[T], job: Job | None) -> T:
        if self._log.is_overfull and job is not None and job.work != self._fold:
            self._make_room()
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            if job is not None and not job.begin():
                raise TimedOut("given up")  # nobody is there to hear it
            result = work(self.connection)
            self._check_file()
            started = time.perf_counter()
            self._commit()
        except BaseException:  # Ctrl-C, too, may come between any two lines
            self._roll_back()
            raise
        if job is None or job.small:
            self._measure(time.perf_counter() - started, inline=job is None)
        self._fold_if_due()
        return result

    def close(self) -> None:
        super().close()
        self._log.close()

    def _commit(self) -> None:
        try:
            self.connection.execute("COMMIT")
        except Exception as error:
            if is_harmless(error):
                raise
            # The last page may have reached the log although its sync failed: after a crash,
            # recovery would find it.
            raise UnknownOutcome(f"COMMIT on {self.path} failed: {error}") from error

    def _check_file(self) -> None:
        """SQLite goes on with a file that has no name any more, and whoever opens that name gets
        another one: nothing may be acknowledged that nobody will ever find."""
        if identity_of(self.path) != self._file:
            raise UnsafeStorage(
                f"{self.path} was deleted, moved or replaced while it was open: what is written now "
                "would be lost. End this process, bring the file back if it was not meant, and "
                "start again"
            )

    def _roll_back(self) -> None:
        # It may not have begun, and after some errors SQLite has rolled back by itself.
        with suppress(Exception):
            self.connection.execute("ROLLBACK")

    def _is_fast(self) -> bool:
        return self.pace < SLOW or time.monotonic() >= self._probe_at

    def _measure(self, seconds: float, *, inline: bool) -> None:
        is_probe = inline and self.pace >= SLOW  # what was before is out of date
        seconds = min(seconds, SPIKE)
        self.pace = seconds if is_probe else self.pace + WEIGHT * (seconds - self.pace)
        if inline and self.pace >= SLOW:
            self._probe_at = time.monotonic() + PROBE_SECONDS

    # -- the log ------------------------------------------------------------------------------

    async def fold(self, *, timeout: float | None) -> bool:
        """Fold the log now; whether that was all of it."""
        folded: bool = await self.hop(AwaitedJob(self._fold), timeout)
        return folded

    def _fold_if_due(self) -> None:
        if self._log.is_due() and not self._is_folding:
            self._is_folding = True
            # The store may be closing: then whoever opens it next folds.
            with suppress(StoreClosed):
                self.post(_FoldJob(self._fold, self._end_of_fold))

    def _fold(self, _: Connection) -> bool:
        return self._log.fold()

    def _end_of_fold(self, error: Exception | None) -> None:
        self._is_folding = False
        if error is not None and not isinstance(error, StoreClosed):
            _logger.warning("a fold of the log failed, the next commits try again: %s", error)

    def _make_room(self) -> None:
        """Fold on behalf of a writer that may not add to the log before."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            folded = self._log.fold()
        finally:
            self._roll_back()
        if not folded:
            raise Busy(
                "the log is at its limit, and a reader in another process keeps it from being "
                "folded: end long transactions of other programs on this file"
            )


class _FoldJob(Job):
    """A fold that a commit has caused and nobody waits for."""

    def __init__(self, work: Work[bool], end: Callable[[Exception | None], None]) -> None:
        super().__init__(work)
        self._end = end

    def settle(self, result: object, error: Exception | None) -> None:
        self._end(error)
