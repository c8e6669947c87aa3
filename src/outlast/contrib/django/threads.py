"""Threads with Django connections, each of which belongs to one thread.

Django's connections block, and an event loop must not block. So statements run in a few threads, and a
transactional step has a thread of its own: there `atomic` begins, the step runs, its completion is written,
and `atomic` ends, all on one connection.
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
    """Up to `limit` threads for statements, and as many for open transactions. Each thread has a connection,
    and the number of connections of a server is limited."""

    def __init__(self, alias: str, limit: int) -> None:
        self._alias = alias
        self._limit = limit
        self._executor: ThreadPoolExecutor | None = None
        self._idle: list[HeldTransaction] = []
        self._free = asyncio.Semaphore(limit)
        self._opened: dict[int, Any] = {}

    def executor(self) -> Executor:
        """The executor for statements."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._limit, "outlast-django")
        return self._executor

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Call `work` in one of the threads."""
        return await asyncio.get_running_loop().run_in_executor(self.executor(), work, *args)

    def connection(self) -> Any:
        """The driver's connection of the calling thread; reconnected if it is known to be broken."""
        own = connections[self._alias]
        if own.connection is not None and getattr(own.connection, "closed", False):
            own.close()
        if (
            own.vendor == "postgresql"
            and own.connection is not None
            and _has_unread_data(own.connection)
        ):
            own.errors_occurred = (
                True  # let Django check: the server may have closed the connection
            )
        own.close_if_unusable_or_obsolete()
        own.ensure_connection()
        if not own.settings_dict["CONN_MAX_AGE"]:
            own.close_at = (
                None  # CONN_MAX_AGE closes it after a request, and there is no request here
            )
        self._opened[id(own)] = own
        return own.connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[HeldTransaction]:
        """`atomic` in a separate thread."""
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
        """Close the connections when their work is done."""
        executor, self._executor = self._executor, None
        idle, self._idle = self._idle, []
        opened, self._opened = self._opened, {}
        self._free = asyncio.Semaphore(self._limit)  # the next loop may be another one

        def end() -> None:
            for held in idle:
                # A step may have opened connections to other databases too.
                held.threads.submit(connections.close_all)
            for one in [executor, *(held.threads for held in idle)]:
                if one is not None:
                    one.shutdown(wait=True)
            for own in opened.values():
                own.inc_thread_sharing()  # its thread has ended
                own.close()

        # Not in the loop's default threads: tests may run those in the loop, where Django refuses.
        last = ThreadPoolExecutor(1, "outlast-django-end")
        await asyncio.get_running_loop().run_in_executor(last, end)
        last.shutdown(wait=False)


def _has_unread_data(driver: Any) -> bool:
    """Whether the socket has unread data that no statement requested, such as the server's notice that it
    shuts down. Needs no round trip."""
    if hasattr(select, "poll"):
        looks = select.poll()
        looks.register(driver.fileno(), select.POLLIN)
        return bool(looks.poll(0))
    return bool(select.select([driver.fileno()], [], [], 0)[0])


class HeldTransaction:
    """An open transaction on the database `alias`; `threads` is an executor with its one thread."""

    def __init__(self, alias: str, threads: Executor | None = None) -> None:
        self.alias = alias
        self.threads = threads or ThreadPoolExecutor(1, "outlast-transaction")
        self._atomic: Any = None

    def cursor(self) -> Any:
        """A Django cursor, for a step: ``outlast.connection().cursor()``."""
        return connections[self.alias].cursor()

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Call `work` in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    async def begin(self, connect: Callable[[], Any]) -> None:
        """Begin the transaction on a working connection. A cancellation meanwhile rolls it back."""

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
            self.threads.submit(self._give_up)  # runs in the same thread, after `begin`
            raise

    async def end(self, error: BaseException | None) -> None:
        """Commit or roll back, after the step's function has returned: a thread cannot be interrupted. After
        a cancellation meanwhile the outcome is unknown to the caller."""
        kind, trace = (None, None) if error is None else (type(error), error.__traceback__)
        try:
            await asyncio.shield(self.run(self._atomic.__exit__, kind, error, trace))
        except (
            IntegrityError
        ) as broken:  # a deferred constraint, checked at COMMIT: SQLite's foreign keys
            raise InvalidValue(
                f"the database refused the transaction ({broken}) and rolled it back"
            ) from broken

    def _give_up(self) -> None:
        atomic, self._atomic = self._atomic, None
        if atomic is not None:
            error = asyncio.CancelledError("the caller was cancelled")
            atomic.__exit__(type(error), error, None)


def _forget(beginning: asyncio.Future[None]) -> None:
    if not beginning.cancelled():
        beginning.exception()


class StepThreads(DaemonThreads):
    """The threads of plain steps that use the ORM. As at the start and end of a request, a connection that is
    broken or too old is closed. A thread that ends closes its connections."""

    def __init__(self) -> None:
        super().__init__(MAX_THREADS, "outlast-step")

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call the function with working connections."""
        return super().submit(_with_working_connections, fn, args, kwargs)

    def _work(self) -> None:
        try:
            super()._work()
        finally:
            connections.close_all()


def _with_working_connections(function: Callable[..., T], args: Any, kwargs: Any) -> T:
    close_old_connections()
    try:
        return function(*args, **kwargs)
    finally:
        close_old_connections()
