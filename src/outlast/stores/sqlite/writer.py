"""Writer: one transaction at a time, in the event loop as long as commits are fast.

A commit to a fast disk takes a fraction of a millisecond, less than a round trip to a thread; a commit
to a slow disk must not block the event loop. So the writer measures how long COMMIT takes for small
transactions. Above `SLOW_COMMIT_S` on average they go to the thread, until it is faster there. A thread
also waits for the interpreter while the loop is busy, so once in a while one is tried in the loop.

Small transactions that wait at the same time are merged into one, in the loop as in the thread
(write_batching.py).

BEGIN IMMEDIATE takes the lock before anything is read, so that what was decided still holds when it is
written. It is the only statement that can meet a lock of another process.
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
from outlast.stores.sqlite.wal import WriteAheadLog
from outlast.stores.sqlite.write_batching import (
    MAX_INLINE_WRITES,
    Batch,
    J,
    WriteBatcher,
    remaining,
    run_together,
)

T = TypeVar("T")
_logger = logging.getLogger("outlast.sqlite")

SLOW_COMMIT_S = 0.002
PROBE_INTERVAL_S = 1.0
AVERAGE_WEIGHT = 0.2  # of the last commit in the moving average
MAX_SAMPLE_S = (
    4 * SLOW_COMMIT_S
)  # longer samples count as this: one slow sync is no reason to switch
MAX_INLINE_S = (
    0.005  # that a batch's statements take in the loop: then those behind wait for the next turn
)


class Writer(ConnectionWorker):
    """The one connection of this process that writes."""

    def __init__(self, connection: Connection, path: Path, log: WriteAheadLog) -> None:
        self.pace = 0.0
        self._log = log
        found = status_of(path)
        self._file = None if found is None else (found.st_dev, found.st_ino)
        self._size = 0 if found is None else found.st_size
        self._pid = os.getpid()
        self._probe_at = 0.0
        self._is_checkpointing = False
        self._batches = WriteBatcher(self._write_batch)
        self._ahead: list[Job] = []
        super().__init__(connection, path, "writer")

    def can_run_inline(self) -> bool:
        return super().can_run_inline() and self._commits_fast() and not self._log.is_overfull

    def foreign_version(self) -> int | None:
        """SQLite's `data_version`: it changes with commits of other connections. None while this
        connection is busy."""
        if not self._mutex.acquire(blocking=False):
            return None
        try:
            return int(scalar(self.connection, "PRAGMA data_version"))
        except Exception:  # noqa: BLE001 - a wake-up is only a hint
            return None
        finally:
            self._mutex.release()

    async def write(self, work: Work[T], *, rows: int, inline: bool, timeout: float | None) -> T:
        """What `work` returns, once what it has written is durable."""
        small = inline and rows <= MAX_INLINE_WRITES
        if small and self.can_run_inline():
            batch = self._batches.here()
            if batch is not None:
                job = AwaitedJob(work, small=True, rows=rows)
                batch.append(job)
                shared: T = await self.outcome(job, timeout)
                return shared
        return await self.run(work, small=small, rows=rows, timeout=timeout)

    def perform(self, work: Work[T], job: Job | None) -> T:
        checkpoints = job is not None and job.work == self._checkpoint
        with self._transaction(
            is_small=job is None or job.small, inline=job is None, checkpoints=checkpoints
        ):
            if job is not None and not job.begin():
                raise TimedOut("abandoned")  # its caller is gone
            return work(self.connection)

    @contextmanager
    def _transaction(
        self, *, is_small: bool, inline: bool, checkpoints: bool = False
    ) -> Iterator[None]:
        """A transaction: committed at the end of the context, or rolled back."""
        if not inline and not checkpoints:
            self._make_room()
        try:
            self.check_file(self.connection)  # before SQLite reads a truncated file
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

    def _write_batch(self, jobs: Batch) -> Batch:
        """Run jobs at once if commits are still fast, else in the thread. Returns the jobs that there
        was no time for."""
        try:
            return self._write_or_post(jobs)
        except BaseException as interrupt:  # Ctrl-C, too, may come between any two lines
            waiting = [job for job in jobs if not job.future.done()]
            if not waiting:
                raise
            waiting[0].tell(None, interrupt)  # it is raised in this one's task
            for job in waiting[1:]:
                job.tell(None, UnknownOutcome(f"the write to {self.path} was interrupted"))
            return []

    def _write_or_post(self, jobs: Batch) -> Batch:
        ends: Sequence[tuple[AwaitedJob, Any, Error]] | None = None
        if os.getpid() != self._pid:
            closed = StoreClosed("this process was forked while the call waited: see the parent")
            ends = [(job, None, closed) for job in jobs]
        elif self.can_run_inline() and self._mutex.acquire(blocking=False):
            try:
                ends = self._run_together(jobs, inline=True)
            finally:
                self._mutex.release()
        left: Batch = []
        if ends is None:
            ends = [(job, None, refused) for job in jobs if (refused := self._refused(job))]
        else:
            left = remaining(jobs, ends)
        for job, result, error in ends:
            job.tell(result, error)
        return left

    def _refused(self, job: Job) -> StoreClosed | None:
        """Hand a job to the thread; the error if the store is closed."""
        try:
            self.post(job)
        except StoreClosed as error:
            return error
        return None

    def _next_jobs(self) -> list[Job]:
        jobs, self._ahead = self._ahead or super()._next_jobs(), []
        rows = sum(job.rows for job in jobs)
        while jobs and 0 < rows <= MAX_INLINE_WRITES and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # the mark for the thread to stop
                break
            rows += job.rows
            if not job.rows or rows > MAX_INLINE_WRITES:
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
            ends = self._run_together(jobs, inline=False)
            if ends is None:
                self._closing.wait(pause)
            else:
                done += ends
                jobs = remaining(jobs, ends)
        raise AssertionError("pauses have no end")

    def _run_together(
        self, jobs: Sequence[J], *, inline: bool
    ) -> list[tuple[J, Any, Error]] | None:
        """The ends of jobs that were run; None if the lock is taken and none has started."""
        transaction = self._transaction(is_small=True, inline=inline)
        try:
            return run_together(
                jobs,
                self.connection,
                transaction,
                self.path,
                seconds=MAX_INLINE_S if inline else None,
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
        """Raise if the file was deleted, replaced or truncated. SQLite keeps writing to a deleted file,
        and does not notice a truncated one while the pages it needs are in memory: commits would be
        acknowledged and lost."""
        found = status_of(self.path)
        if found is None or (found.st_dev, found.st_ino) != self._file:
            raise UnsafeStorage(
                f"{self.path} was deleted, moved or replaced while it was open: what is written now "
                "would be lost. End this process, restore the file if it was a mistake, and "
                "start again"
            )

        if found.st_size < self._size:
            self._check_size(connection, found.st_size)
        self._size = found.st_size

    def _check_size(self, connection: Connection, size: int) -> None:
        """A smaller file was vacuumed, and has fewer pages now, or was truncated."""
        pages = size and scalar(connection, "PRAGMA page_count")
        if not size or size < pages * scalar(connection, "PRAGMA page_size"):
            raise UnsafeStorage(
                f"{self.path} was truncated while it was open, from {self._size:,} bytes to {size:,}: "
                "its data is lost. End all processes that use it, restore it from a backup with its -wal "
                "file deleted, and start again"
            )

    def _roll_back(self) -> None:
        # BEGIN may have failed, and after some errors SQLite has rolled back by itself.
        with suppress(Exception):
            self.connection.execute("ROLLBACK")

    def _commits_fast(self) -> bool:
        return self.pace < SLOW_COMMIT_S or time.monotonic() >= self._probe_at

    def _measure(self, seconds: float, *, inline: bool) -> None:
        is_probe = inline and self.pace >= SLOW_COMMIT_S  # the average is of the thread
        seconds = min(seconds, MAX_SAMPLE_S)
        self.pace = seconds if is_probe else self.pace + AVERAGE_WEIGHT * (seconds - self.pace)
        if inline and self.pace >= SLOW_COMMIT_S:
            self._probe_at = time.monotonic() + PROBE_INTERVAL_S

    # -- the log ------------------------------------------------------------------------------

    async def checkpoint(self, *, timeout: float | None) -> bool:
        """Checkpoint the log now; False if a reader held a part of it up."""
        checkpointed: bool = await self.run_in_thread(AwaitedJob(self._checkpoint), timeout)
        return checkpointed

    def _checkpoint_if_due(self) -> None:
        if self._log.is_due() and not self._is_checkpointing:
            self._is_checkpointing = True
            # If the store is closing, the next process that opens it checkpoints.
            with suppress(StoreClosed):
                self.post(_CheckpointJob(self._checkpoint, self._end_of_checkpoint))

    def _checkpoint(self, _: Connection) -> bool:
        return self._log.checkpoint()

    def _end_of_checkpoint(self, error: Error) -> None:
        self._is_checkpointing = False
        if error is not None and not isinstance(error, StoreClosed):
            _logger.warning("a checkpoint of the log failed, the next commits try again: %s", error)

    def _make_room(self) -> None:
        """Checkpoint before a write, if the log is at its hard limit."""
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
    """A checkpoint in the background, caused by a commit."""

    def __init__(self, work: Work[bool], end: Callable[[Error], None]) -> None:
        super().__init__(work)
        self._end = end

    def settle(self, result: object, error: Error) -> None:
        self._end(error)
