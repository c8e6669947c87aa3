"""Writer: one transaction at a time, in the event loop as long as that is fast.

A commit to a good disk takes a fraction of a millisecond, less than it takes to wake a thread and
come back; one to a slow disk must not hold up the loop. So the writer watches how long COMMIT takes
for small transactions. Above `SLOW` on average they go to the thread, until it is faster there; and
because a thread also waits for the interpreter when the loop is busy, one is tried in the loop again
once in a while.

Small ones that wait at the same time share a transaction, in the loop (crowds.py) as in the thread: one
sync for all of them (sharing.py).

BEGIN IMMEDIATE takes the lock before anything is read, so that what is decided holds when it is
written; and it is the only statement that can meet a lock of another process.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from outlast.errors import Busy, StoreClosed, TimedOut, UnknownOutcome, UnsafeStorage
from outlast.stores.sqlite.connection import Connection, scalar
from outlast.stores.sqlite.connection_worker import (
    AwaitedJob,
    ConnectionWorker,
    End,
    Error,
    Job,
    Work,
    pauses,
)
from outlast.stores.sqlite.driver_errors import is_harmless
from outlast.stores.sqlite.location import status_of
from outlast.stores.sqlite.wal import Log
from outlast.stores.sqlite.write_batching import SMALL, Crowd, J, WriteBatcher, left_of, share

T = TypeVar("T")
_logger = logging.getLogger("outlast.sqlite")

SLOW = 0.002
PROBE_SECONDS = 1.0
WEIGHT = 0.2  # of the last commit in the average
SPIKE = 4 * SLOW  # more than this counts as this: one hiccup of the disk is no reason to leave
LONG = 0.005  # that a crowd's statements take in the loop: then those behind wait for the next turn


class Writer(ConnectionWorker):
    """The one connection of this process that writes."""

    def __init__(self, connection: Connection, path: Path, log: Log) -> None:
        self.pace = 0.0
        self._log = log
        found = status_of(path)
        self._file = None if found is None else (found.st_dev, found.st_ino)
        self._size = 0 if found is None else found.st_size
        self._pid = os.getpid()
        self._probe_at = 0.0
        self._is_checkpointing = False
        self._crowds = WriteBatcher(self._write_crowd)
        self._ahead: list[Job] = []
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

    async def write(self, work: Work[T], *, rows: int, inline: bool, timeout: float | None) -> T:
        """What `work` returns, when all that it has written is durable."""
        small = inline and rows <= SMALL
        if small and self.is_quick():
            crowd = self._crowds.here()
            if crowd is not None:
                job = AwaitedJob(work, small=True, rows=rows)
                crowd.append(job)
                shared: T = await self.outcome(job, timeout)
                return shared
        return await self.run(work, small=small, rows=rows, timeout=timeout)

    def perform(self, work: Work[T], job: Job | None) -> T:
        checkpoints = job is not None and job.work == self._checkpoint
        with self._transaction(
            is_small=job is None or job.small, inline=job is None, checkpoints=checkpoints
        ):
            if job is not None and not job.begin():
                raise TimedOut("given up")  # nobody is there to hear it
            return work(self.connection)

    @contextmanager
    def _transaction(
        self, *, is_small: bool, inline: bool, checkpoints: bool = False
    ) -> Iterator[None]:
        """Committed at its end, or rolled back."""
        if not inline and not checkpoints:
            self._make_room()
        try:
            self.check_file(self.connection)  # before SQLite stumbles over a file that was cut
            self.connection.execute("BEGIN IMMEDIATE")
            yield
            self.check_file(self.connection)
            started = time.perf_counter()
            self._commit()
        except BaseException:  # Ctrl-C, too, may come between any two lines
            self._roll_back()
            raise
        if is_small:
            self._measure(time.perf_counter() - started, inline=inline)
        self._checkpoint_if_due()

    # -- many in one transaction --------------------------------------------------------------

    def _write_crowd(self, jobs: Crowd) -> Crowd:
        """Here and now, if that is as fast as they were told; else in the thread. Gives back those for
        whom there was no time."""
        try:
            return self._dealt_with(jobs)
        except BaseException as interrupt:  # Ctrl-C, too, may come between any two lines
            waiting = [job for job in jobs if not job.future.done()]
            if not waiting:
                raise
            waiting[0].tell(None, interrupt)  # it is raised in this one's task
            for job in waiting[1:]:
                job.tell(None, UnknownOutcome(f"the write to {self.path} was interrupted"))
            return []

    def _dealt_with(self, jobs: Crowd) -> Crowd:
        ends: Sequence[tuple[AwaitedJob, Any, Error]] | None = None
        if os.getpid() != self._pid:
            closed = StoreClosed("this process was forked while the call waited: see the parent")
            ends = [(job, None, closed) for job in jobs]
        elif self.is_quick() and self._mutex.acquire(blocking=False):
            try:
                ends = self._together(jobs, inline=True)
            finally:
                self._mutex.release()
        left: Crowd = []
        if ends is None:
            ends = [(job, None, refused) for job in jobs if (refused := self._refused(job))]
        else:
            left = left_of(jobs, ends)
        for job, result, error in ends:
            job.tell(result, error)
        return left

    def _refused(self, job: Job) -> StoreClosed | None:
        """Leave a job for the thread; why that cannot be done."""
        try:
            self.post(job)
        except StoreClosed as error:
            return error
        return None

    def _next_jobs(self) -> list[Job]:
        jobs, self._ahead = self._ahead or super()._next_jobs(), []
        rows = sum(job.rows for job in jobs)
        while jobs and 0 < rows <= SMALL and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # the end stays the end
                break
            rows += job.rows
            if not job.rows or rows > SMALL:
                self._ahead = [job]
                break
            jobs.append(job)
        return jobs

    def _do(self, jobs: list[Job]) -> list[End]:
        if len(jobs) == 1:
            return super()._do(jobs)
        done: list[End] = []
        for pause in pauses():
            if self._closing.is_set():
                closed = StoreClosed(f"the store at {self.path} was closed while this call waited")
                return done + [(job, None, closed) for job in jobs]
            jobs = [job for job in jobs if not job.is_decided]
            if not jobs:
                return done
            ends = self._together(jobs, inline=False)
            if ends is None:
                self._closing.wait(pause)
            else:
                done += ends
                jobs = left_of(jobs, ends)
        raise AssertionError("pauses have no end")

    def _together(self, jobs: Sequence[J], *, inline: bool) -> list[tuple[J, Any, Error]] | None:
        """What came of those that were done; None if a lock is taken, and none has begun."""
        transaction = self._transaction(is_small=True, inline=inline)
        try:
            return share(
                jobs, self.connection, transaction, self.path, seconds=LONG if inline else None
            )
        except Busy as busy:
            self._obstacle = str(busy)
            return None

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

    def check_file(self, connection: Connection) -> None:
        """SQLite goes on with a file that has no name any more, and whoever opens that name gets
        another one: nothing may be acknowledged that nobody will ever find. Nor does it notice that
        a file was cut, as long as it has the pages that it needs in memory."""
        found = status_of(self.path)
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise UnsafeStorage(
                f"{self.path} was deleted, moved or replaced while it was open: what is written now "
                "would be lost. End this process, bring the file back if it was not meant, and "
                "start again"
            )

        if found.st_size < self._size:
            self._check_size(connection, found.st_size)
        self._size = found.st_size

    def _check_size(self, connection: Connection, size: int) -> None:
        """A file that has become smaller was vacuumed, and has fewer pages now, or was truncated."""
        pages = size and scalar(connection, "PRAGMA page_count")
        if not size or size < pages * scalar(connection, "PRAGMA page_size"):
            raise UnsafeStorage(
                f"{self.path} was truncated while it was open, from {self._size:,} bytes to {size:,}: "
                "what it held is lost. End all processes that use it, bring it back from a backup with "
                "its -wal file deleted, and start again"
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

    async def checkpoint(self, *, timeout: float | None) -> bool:
        """Checkpoint the log now; whether that was all of it."""
        checkpointed: bool = await self.hop(AwaitedJob(self._checkpoint), timeout)
        return checkpointed

    def _checkpoint_if_due(self) -> None:
        if self._log.is_due() and not self._is_checkpointing:
            self._is_checkpointing = True
            # The store may be closing: then whoever opens it next checkpoints.
            with suppress(StoreClosed):
                self.post(_CheckpointJob(self._checkpoint, self._end_of_checkpoint))

    def _checkpoint(self, _: Connection) -> bool:
        return self._log.checkpoint()

    def _end_of_checkpoint(self, error: Error) -> None:
        self._is_checkpointing = False
        if error is not None and not isinstance(error, StoreClosed):
            _logger.warning("a checkpoint of the log failed, the next commits try again: %s", error)

    def _make_room(self) -> None:
        """Checkpoint on behalf of a writer that may not add to the log before."""
        if not self._log.is_overfull:
            return
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            checkpointed = self._log.checkpoint()
        finally:
            self._roll_back()
        if not checkpointed:
            raise Busy(
                "the log is at its limit, and a reader in another process keeps it from being "
                "checkpointed: end long transactions of other programs on this file"
            )


class _CheckpointJob(Job):
    """A checkpoint that a commit has caused and nobody waits for."""

    def __init__(self, work: Work[bool], end: Callable[[Error], None]) -> None:
        super().__init__(work)
        self._end = end

    def settle(self, result: object, error: Error) -> None:
        self._end(error)
