"""ConnectionWorker: one connection, one mutex, one thread.

::

    call ── small, and the mutex is free? ── yes ──▶ at once, in the event loop
                     │ no, or another connection holds the lock of the database
                     ▼
             the worker's thread, one job after the other: it waits, the loop does not

A round trip to a thread costs more than a small statement, so most calls stay in the event loop.
Nothing in the loop ever waits, neither for the mutex nor for another process.

A job that waits is abandoned at its deadline, or when its caller is cancelled. A write that has
started runs to its end. The job's lock decides between the two: the first to acquire it wins.
"""

from __future__ import annotations

import asyncio
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from outlast.errors import Busy, StoreClosed, TimedOut, UnknownOutcome
from outlast.stores.sqlite.connection import Connection
from outlast.stores.sqlite.driver_errors import translate

T = TypeVar("T")
Work = Callable[[Connection], T]

Error = BaseException | None

MIN_PAUSE_S = 0.0002
MAX_PAUSE_S = 0.01
NO_OBSTACLE = "other calls were before it in the queue of the thread"


class Job(ABC):
    """Work for the thread. `small`: the event loop could do it as well. `rows`: about how many it
    writes."""

    def __init__(self, work: Work[Any], *, small: bool = False, rows: int = 0) -> None:
        self.work = work
        self.small = small
        self.rows = rows
        self._decided = threading.Lock()

    def begin(self) -> bool:
        """Called by the thread before it changes anything: False if the job was abandoned."""
        return self._decided.acquire(blocking=False)

    def reset(self) -> None:
        """Called after a rollback: the job can start again later."""
        self._decided.release()

    def give_up(self) -> bool:
        """Called by the caller: True if the job will not run, False if it has started."""
        return self._decided.acquire(blocking=False)

    @property
    def is_decided(self) -> bool:
        """Whether it has started or was abandoned."""
        return self._decided.locked()

    @abstractmethod
    def settle(self, result: object, error: Error) -> None:
        """Called by the thread at the end, with the result or the error."""


class AwaitedJob(Job):
    """A job that a coroutine awaits."""

    def __init__(self, work: Work[Any], *, small: bool = False, rows: int = 0) -> None:
        super().__init__(work, small=small, rows=rows)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def begin(self) -> bool:
        if self.future.done():
            self.give_up()  # its caller was just cancelled
            return False
        return super().begin()

    def expire(self, obstacle: str) -> None:
        """Called by the loop at the deadline."""
        if self.future.done():
            return
        if self.give_up():
            self.future.set_exception(TimedOut(f"nothing was done in time: {obstacle}"))
        else:
            self.future.set_exception(
                UnknownOutcome("the deadline passed while the write was on its way")
            )

    def settle(self, result: object, error: Error) -> None:
        try:
            self._loop.call_soon_threadsafe(self.tell, result, error)
        except RuntimeError:
            return  # the event loop was closed meanwhile

    def tell(self, result: object, error: Error) -> None:
        """Called in the event loop: resolve the future."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


End = tuple[Job, Any, Error]
"""A job with its result, or its error."""


class ConnectionWorker:
    """Runs functions on its connection, one at a time. This one is for reading."""

    def __init__(self, connection: Connection, path: Path, name: str) -> None:
        self.connection = connection
        self.path = path
        self._mutex = threading.Lock()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._entrance = threading.Lock()
        self._waiting = 0
        self._closing = threading.Event()
        self._obstacle = NO_OBSTACLE
        # A daemon thread: a process that ends without `close` must not hang on a job that waits for
        # a lock. A write that was not acknowledged may be lost then; the file stays consistent.
        self._thread = threading.Thread(target=self._serve, name=f"outlast-{name}", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T], *, small: bool, timeout: float | None, rows: int = 0) -> T:
        """What `work` returns. `small`: it may run in the event loop."""
        if small and self.can_run_inline() and self._mutex.acquire(blocking=False):
            try:
                return self.attempt(work)
            except Busy as busy:
                self._obstacle = str(busy)  # the thread waits for the lock
            finally:
                self._mutex.release()
        result: T = await self.run_in_thread(AwaitedJob(work, small=small, rows=rows), timeout)
        return result

    def can_run_inline(self) -> bool:
        """Whether small work may run in the event loop now: not while jobs wait for the thread, which a
        busy loop could starve."""
        return not self._waiting

    def attempt(self, work: Work[T], job: Job | None = None) -> T:
        """Try once, with the mutex held. `Busy` if another connection holds the lock: nothing was done."""
        try:
            return self.perform(work, job)
        except Exception as error:
            fault = translate(error, self.path)
            if fault is None:
                raise
            raise fault from error

    def perform(self, work: Work[T], job: Job | None) -> T:
        """Run it, as a reader does; the writer overrides this."""
        return work(self.connection)

    def post(self, job: Job) -> None:
        """Hand a job to the thread."""
        with self._entrance:
            if self._closing.is_set():
                raise StoreClosed(f"the store at {self.path} is closed")
            self._waiting += 1
            self._jobs.put(job)

    def close(self) -> None:
        """Stop the thread after the job that it runs, and close the connection. Jobs that wait end
        with `StoreClosed`. Blocks: do not call it in an event loop."""
        with self._entrance:
            self._closing.set()
            self._jobs.put(None)
        self._thread.join()
        with self._mutex:
            self.connection.close()

    async def run_in_thread(self, job: AwaitedJob, timeout: float | None) -> Any:
        """What the job returns, done by the thread."""
        self.post(job)
        return await self.outcome(job, timeout)

    async def outcome(self, job: AwaitedJob, timeout: float | None) -> Any:
        """Await a job."""
        timer = None
        if timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(max(timeout, 0), lambda: job.expire(self._obstacle))
        try:
            return await job.future
        finally:
            # If the caller was cancelled: a job that has not started will not run; one that has
            # started runs to its end. The caller cannot know which.
            job.give_up()
            if timer is not None:
                timer.cancel()

    def _serve(self) -> None:
        while jobs := self._next_jobs():
            with self._mutex:
                ends = self._do(jobs)
                self._obstacle = NO_OBSTACLE
            with self._entrance:
                self._waiting -= len(jobs)
            for job, result, error in ends:
                job.settle(result, error)

    def _next_jobs(self) -> list[Job]:
        """The next jobs for the thread; none when it closes."""
        job = self._jobs.get()
        return [] if job is None else [job]

    def _do(self, jobs: list[Job]) -> list[End]:
        """Results and errors. An error belongs to the caller, never to the thread."""
        (job,) = jobs
        try:
            return [(job, self._patiently(job), None)]
        except Exception as error:  # noqa: BLE001
            return [(job, None, error)]

    def _patiently(self, job: Job) -> object:
        for pause in pauses():
            if self._closing.is_set():
                raise StoreClosed(f"the store at {self.path} was closed while this call waited")
            if job.is_decided:
                return None  # abandoned
            try:
                return self.attempt(job.work, job)
            except Busy as busy:
                if job.is_decided:
                    raise  # it had started: this is its outcome
                self._obstacle = str(busy)
            self._closing.wait(pause)
        raise AssertionError("pauses have no end")


def pauses() -> Iterator[float]:
    """Seconds to wait for a lock, with exponential backoff and jitter, so that processes do not retry
    in lockstep."""
    longest = MIN_PAUSE_S
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(longest * 1.5, MAX_PAUSE_S)
