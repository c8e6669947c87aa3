"""ConnectionWorker: one connection, one mutex, one thread.

::

    call ── small, and the mutex is free? ── yes ──▶ here and now, in the event loop
                     │ no, or a lock of the database is taken
                     ▼
             the lane's thread, one job after the other: it waits, the loop does not

A hop to a thread and back costs more than a small statement, so most calls never leave the loop.
Nothing in the loop ever waits: neither for the mutex nor for another process.

A job that waits can be given up, by its deadline or because its caller was cancelled; a write that
has begun cannot, and comes to its own end. Which of the two it is, is decided once, by whoever
gets the job's lock first.
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

SHORTEST_PAUSE = 0.0002
LONGEST_PAUSE = 0.01
NO_OBSTACLE = "its turn did not come"


class Job(ABC):
    """Something for a lane's thread to do. It is `small` if the loop might have done it as well, and
    writes about so many rows."""

    def __init__(self, work: Work[Any], *, small: bool = False, rows: int = 0) -> None:
        self.work = work
        self.small = small
        self.rows = rows
        self._decided = threading.Lock()

    def begin(self) -> bool:
        """Called by the thread before it changes anything: False if the job was given up."""
        return self._decided.acquire(blocking=False)

    def put_off(self) -> None:
        """Called by who has begun, when all that it has changed is taken back: it begins anew later."""
        self._decided.release()

    def give_up(self) -> bool:
        """Called by who waits: True if the job will not be done, False if it has begun."""
        return self._decided.acquire(blocking=False)

    @property
    def is_decided(self) -> bool:
        """Whether it has begun or was given up."""
        return self._decided.locked()

    @abstractmethod
    def settle(self, result: object, error: Error) -> None:
        """Called by the thread at the end, with what came of it."""


class AwaitedJob(Job):
    """A job that somebody in an event loop waits for."""

    def __init__(self, work: Work[Any], *, small: bool = False, rows: int = 0) -> None:
        super().__init__(work, small=small, rows=rows)
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._loop.create_future()

    def begin(self) -> bool:
        if self.future.done():
            self.give_up()  # whoever was cancelled a moment ago will do so anyway
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
            return  # the loop was closed meanwhile: nobody waits any more

    def tell(self, result: object, error: Error) -> None:
        """Called in the loop, with what came of it."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


End = tuple[Job, Any, Error]
"""What came of a job: what it has returned, or why it has not."""


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
        # A daemon: a process that ends without `close` must not hang on a job that waits for a
        # lock. What was not acknowledged may be lost then, and the file is safe against that.
        self._thread = threading.Thread(target=self._serve, name=f"outlast-{name}", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T], *, small: bool, timeout: float | None, rows: int = 0) -> T:
        """What `work` returns. `small` says that it may be done in the loop."""
        if small and self.is_quick() and self._mutex.acquire(blocking=False):
            try:
                return self.attempt(work)
            except Busy as busy:
                self._obstacle = str(busy)  # the thread waits for it to go away
            finally:
                self._mutex.release()
        result: T = await self.hop(AwaitedJob(work, small=small, rows=rows), timeout)
        return result

    def is_quick(self) -> bool:
        """Whether something small can be done in the loop now. Not past those who wait already: a loop
        that is busy could keep them waiting for ever."""
        return not self._waiting

    def attempt(self, work: Work[T], job: Job | None = None) -> T:
        """Try once, with the mutex held. `Busy` if a lock is taken; then nothing was done."""
        try:
            return self.perform(work, job)
        except Exception as error:
            fault = translate(error, self.path)
            if fault is None:
                raise
            raise fault from error

    def perform(self, work: Work[T], job: Job | None) -> T:
        """Do it. A reader needs no more than this."""
        return work(self.connection)

    def post(self, job: Job) -> None:
        """Leave a job for the thread."""
        with self._entrance:
            if self._closing.is_set():
                raise StoreClosed(f"the store at {self.path} is closed")
            self._waiting += 1
            self._jobs.put(job)

    def close(self) -> None:
        """Stop the thread, after what it has begun, and close the connection. Jobs that wait for
        a lock or for their turn end with `StoreClosed`. Blocks: not to be called in a loop."""
        with self._entrance:
            self._closing.set()
            self._jobs.put(None)
        self._thread.join()
        with self._mutex:
            self.connection.close()

    async def hop(self, job: AwaitedJob, timeout: float | None) -> Any:
        """What the job returns, done by the thread."""
        self.post(job)
        return await self.outcome(job, timeout)

    async def outcome(self, job: AwaitedJob, timeout: float | None) -> Any:
        """What a job returns that somebody else will do."""
        timer = None
        if timeout is not None:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(max(timeout, 0), lambda: job.expire(self._obstacle))
        try:
            return await job.future
        finally:
            # If the caller was cancelled: what has not begun will not be done; what has begun
            # comes to its own end, and the caller cannot know which of the two it is.
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
        """What the thread does next; nothing at the end."""
        job = self._jobs.get()
        return [] if job is None else [job]

    def _do(self, jobs: list[Job]) -> list[End]:
        """What came of them. Whatever it is, it belongs to who waits, not to the thread."""
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
                return None  # given up
            try:
                return self.attempt(job.work, job)
            except Busy as busy:
                if job.is_decided:
                    raise  # it had begun: this is how it ends
                self._obstacle = str(busy)
            self._closing.wait(pause)
        raise AssertionError("pauses have no end")


def pauses() -> Iterator[float]:
    """Seconds to wait for a lock, again and again: longer and longer, and by chance, so that
    processes that wait for each other do not march in step."""
    longest = SHORTEST_PAUSE
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(longest * 1.5, LONGEST_PAUSE)
