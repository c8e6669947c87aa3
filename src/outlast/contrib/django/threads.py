"""Threads with connections of Django's, which belong to one thread each.

A worker's loop must not wait for a database, and Django's connections do nothing else. So statements
go to a few threads, and a transactional step has one for itself: in it, `atomic` begins, the step
runs, its completion is written, and `atomic` ends. Nothing of it can happen on another connection.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from django.db import IntegrityError, close_old_connections, connections, transaction

from outlast.engine.steps.step_executor import MAX_THREADS, DaemonThreads
from outlast.errors import InvalidValue

T = TypeVar("T")


class Threads:
    """Up to `limit` threads for statements, and as many for transactions that are under way: each has a
    connection, and a server has not many."""

    def __init__(self, alias: str, limit: int) -> None:
        self._alias = alias
        self._limit = limit
        self._executor: ThreadPoolExecutor | None = None
        self._idle: list[HeldTransaction] = []
        self._free = asyncio.Semaphore(limit)
        self._opened: dict[int, Any] = {}

    def executor(self) -> Executor:
        """Where statements run."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._limit, "outlast-django")
        return self._executor

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """What `work` returns, in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self.executor(), work, *args)

    def connection(self) -> Any:
        """The driver's connection of the thread that calls this, alive as far as anybody knows."""
        own = connections[self._alias]
        if own.connection is not None and getattr(own.connection, "closed", False):
            own.close()
        if own.vendor == "postgresql" and own.connection is not None and _has_come(own.connection):
            own.errors_occurred = (
                True  # let Django ask the server: it may have ended the connection
            )
        own.close_if_unusable_or_obsolete()
        own.ensure_connection()
        if not own.settings_dict["CONN_MAX_AGE"]:
            own.close_at = (
                None  # "close it after the request": there is none, and it is wanted again
            )
        self._opened[id(own)] = own
        return own.connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[HeldTransaction]:
        """`atomic`, from its beginning to its end, in a thread of its own."""
        async with self._free:
            held = self._idle.pop() if self._idle else HeldTransaction(self._alias)
            try:
                await held.begin(self.connection)
                try:
                    yield held
                except BaseException as error:
                    await held.end(error)
                    raise
                await held.end(None)
            finally:
                self._idle.append(held)

    async def close(self) -> None:
        """Close the connections, after what is under way."""
        executor, self._executor = self._executor, None
        idle, self._idle = self._idle, []
        opened, self._opened = self._opened, {}
        self._free = asyncio.Semaphore(self._limit)  # another loop may come

        def end() -> None:
            for held in idle:
                # A step may have used other databases too: whatever the thread has opened.
                held.threads.submit(connections.close_all)
            for one in [executor, *(held.threads for held in idle)]:
                if one is not None:
                    one.shutdown(wait=True)
            for own in opened.values():
                own.inc_thread_sharing()  # its thread has ended
                own.close()

        # Not in the loop's own threads: where tests let those work in the loop, Django would refuse.
        last = ThreadPoolExecutor(1, "outlast-django-end")
        await asyncio.get_running_loop().run_in_executor(last, end)
        last.shutdown(wait=False)


def _has_come(driver: Any) -> bool:
    """Whether the server has said something that nobody has asked for, such as that it goes: one look at
    the socket, and no round trip."""
    if hasattr(select, "poll"):
        looks = select.poll()
        looks.register(driver.fileno(), select.POLLIN)
        return bool(looks.poll(0))
    return bool(select.select([driver.fileno()], [], [], 0)[0])


class HeldTransaction:
    """A transaction on the database `alias`; `threads` is the one thread in which it is."""

    def __init__(self, alias: str, threads: Executor | None = None) -> None:
        self.alias = alias
        self.threads = threads or ThreadPoolExecutor(1, "outlast-transaction")
        self._atomic: Any = None

    def cursor(self) -> Any:
        """A cursor of Django's, for a step that wants one: ``outlast.connection().cursor()``."""
        return connections[self.alias].cursor()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """What `work` returns, in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    async def begin(self, connect: Callable[[], Any]) -> None:
        """Begin it, with a connection that is alive. Whoever is cancelled meanwhile leaves none open."""

        def begin() -> None:
            self._atomic = None
            connect()
            atomic = transaction.atomic(using=self.alias)
            atomic.__enter__()
            self._atomic = atomic

        beginning = asyncio.ensure_future(self.run(begin))
        try:
            await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(_forget)
            self.threads.submit(self._give_up)  # right after it, in its thread
            raise

    async def end(self, error: BaseException | None) -> None:
        """Commit, or roll back. What has begun is waited for: a step cannot be torn out of a thread.
        Whoever is cancelled meanwhile does not know what became of it."""
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            await asyncio.shield(self.run(self._atomic.__exit__, kind, error, trace))
        except (
            IntegrityError
        ) as broken:  # a constraint that waits for the COMMIT: SQLite's foreign keys
            raise InvalidValue(
                f"the database has refused what was written ({broken}), and rolled it back"
            ) from broken

    def _give_up(self) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            error = asyncio.CancelledError("nobody waits for this transaction")
            atomic.__exit__(type(error), error, None)


def _forget(beginning: asyncio.Future[None]) -> None:
    if not beginning.cancelled():
        beginning.exception()


class StepThreads(DaemonThreads):
    """Where plain steps run that use the ORM: as at the beginning and the end of a request, a
    connection that is broken or too old is not used again. A thread that ends closes its connections."""

    def __init__(self) -> None:
        super().__init__(MAX_THREADS, "outlast-step")

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run it with connections that work."""
        return super().submit(_afresh, fn, args, kwargs)

    def _work(self) -> None:
        try:
            super()._work()
        finally:
            connections.close_all()


def _afresh(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    close_old_connections()
    try:
        return function(*args, **kwargs)
    finally:
        close_old_connections()
