"""Runs: starts and changes runs from a view, inside the view's transaction.

::

    with transaction.atomic():
        order = Order.objects.create(...)
        runs.start(checkout(order.pk), id=f"order-{order.pk}")

The run, the signal and the task are rows of the same transaction: a commit makes them visible and wakes a
worker, and a rollback removes them. Outside of `atomic` each call is a transaction of its own. Async code
uses the methods with the prefix `a`. Everything about one run is on its handle, ``runs.get(id)``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.db import connections

from outlast import sync
from outlast.call import Call, mark_used
from outlast.client import Client, RunView
from outlast.client import RunHandle as AsyncRunHandle
from outlast.client.backend import Backend
from outlast.client.client import StartOptions
from outlast.contrib.django.conf import Settings, discover, read_settings
from outlast.contrib.django.store import thread_store
from outlast.contrib.django.wakeups import run_blocking, wake_on_commit
from outlast.errors import WorkflowMisuse
from outlast.model.ids import check_id
from outlast.model.run import Run
from outlast.model.run_contents import Task
from outlast.model.times import to_seconds
from outlast.sync.blocking import iterate

R = TypeVar("R")
T = TypeVar("T")

POLL_SECONDS = 0.2


class Runs:
    """Starts runs and acts on them, on the database of the settings, in the caller's transaction."""

    # -- starting -----------------------------------------------------------------------------

    @overload
    def start(self, call: Call[R], **options: Unpack[StartOptions]) -> RunHandle[R]: ...
    @overload
    def start(
        self,
        call: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> RunHandle[Any]: ...
    def start(self, call: Any, *args: Any, **options: Any) -> RunHandle[Any]:
        """Start a run; a worker executes it: ``runs.start(checkout(order.pk), id=…)``; options as for
        `outlast.Client.start`."""
        mark_used(call)
        return self._handle(self._call(lambda client: client.start(call, *args, **options)).id)

    async def astart(self, call: Call[R], **options: Unpack[StartOptions]) -> RunHandle[R]:
        """`start`, in async code. Its handle has methods with the prefix `a` too."""
        return await _in_thread(self.start, call, **options)

    def start_many(
        self, calls: Mapping[str, Call[Any]] | Iterable[Call[Any]], **options: Any
    ) -> list[str]:
        """Start many runs and return their ids; see `outlast.Client.start_many`."""
        handles = self._call(lambda client: client.start_many(calls, **options))
        return [handle.id for handle in handles]

    def enqueue(self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0) -> int:
        """Put tasks into a queue that is used without runs; returns how many are new."""
        store = thread_store(read_settings())
        added = run_blocking(store.queue().enqueue(queue, tasks, delay=delay))
        wake_on_commit(read_settings().database)
        return added

    # -- reaching -----------------------------------------------------------------------------

    def get(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere: everything about that run."""
        return self._handle(run_id)

    def find(self, query: str = "", **filters: Any) -> list[RunView]:
        """Runs that match, newest first; see `outlast.Client.find`."""
        return list(iterate(run_blocking, thread_client().find(query, **filters)))

    # -- internals ----------------------------------------------------------------------------

    def _call(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return run_blocking(act(thread_client()))

    def _handle(self, run_id: str) -> RunHandle[Any]:
        backend = _ThreadBackend(read_settings())
        return RunHandle(run_blocking, AsyncRunHandle(backend, check_id(run_id, child=True)))


class RunHandle(sync.RunHandle[T]):
    """A run, by its id. Synchronous methods act in the transaction that the thread is in; in async code the same
    have an `a` in front."""

    async def astatus(self) -> RunView:
        """`status`, in async code."""
        return await _in_thread(self.status)

    async def asignal(self, name: str, value: Any = None, *, dedup: str | None = None) -> None:
        """`signal`, in async code."""
        await _in_thread(self.signal, name, value, dedup=dedup)

    async def acancel(self, reason: str = "cancelled") -> None:
        """`cancel`, in async code."""
        await _in_thread(self.cancel, reason)

    async def aresume(self, value: Any = None) -> None:
        """`resume`, in async code."""
        await _in_thread(self.resume, value)

    async def aresult(self, *, timeout: float | timedelta | None = None) -> T:
        """`result`, in async code: no thread waits meanwhile."""
        async with asyncio.timeout(to_seconds(timeout)):
            while not (await self.astatus()).status.terminal:  # noqa: ASYNC110 - no wake-up comes here
                await asyncio.sleep(POLL_SECONDS)
        return await _in_thread(self.result)


class _ThreadBackend(Backend):
    """A backend on the connection that the calling thread has. It refuses to wait for what cannot come: inside
    `atomic` no other process sees what was started there."""

    def __init__(self, settings: Settings) -> None:
        workflows = {one.name: one.definition for one in discover(settings).workflows}
        super().__init__(thread_store(settings), settings.codec, workflows)

    async def ended(self, run_id: str, timeout: float | None) -> Run:
        if not (await self.record(run_id)).status.terminal:
            _refuse_waiting()
        return await super().ended(run_id, timeout)

    def check_may_wait(self) -> None:
        _refuse_waiting()


class ThreadClient(Client):
    """A client on the connection of the calling thread."""

    def __init__(self) -> None:
        self._backend = _ThreadBackend(read_settings())
        self._owned = None


def thread_client() -> ThreadClient:
    """A client on the connection of the calling thread."""
    return ThreadClient()


def _refuse_waiting() -> None:
    alias = read_settings().database
    if connections[alias].in_atomic_block:
        raise WorkflowMisuse(
            f"waiting for a run inside a transaction on {alias!r} would never end: workers see "
            "your changes only after the commit. Wait after transaction.atomic(), with "
            "ATOMIC_REQUESTS in a view with @transaction.non_atomic_requests, or use "
            "transaction.on_commit()"
        )


async def _in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    # In the thread that Django reserves for sync code: its connection is the one of `sync_to_async`.
    found: T = await sync_to_async(function, thread_sensitive=True)(*args, **options)
    return found


runs = Runs()
