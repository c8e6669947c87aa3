"""Runs: starts and changes runs from a view, inside the view's transaction.

::

    with transaction.atomic():
        order = Order.objects.create(...)
        runs.start(checkout(order.pk), id=f"order-{order.pk}")

The run, the signal and the task are rows of the same transaction: a commit makes them visible and wakes a
worker, and a rollback removes them. Outside of `atomic` each call is a transaction of its own. Async code
uses the methods with the prefix `a`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.db import connections

from outlast.call import Call, mark_used
from outlast.client import Client
from outlast.client import RunHandle as AsyncRunHandle
from outlast.client.client import StartOptions
from outlast.contrib.django.conf import read_settings
from outlast.contrib.django.discovery import discover
from outlast.contrib.django.store import thread_store
from outlast.contrib.django.wakeups import run_blocking, wake_on_commit
from outlast.errors import WorkflowMisuse
from outlast.model.event import Event
from outlast.model.ids import check_id
from outlast.model.run import Run
from outlast.model.run_contents import Task
from outlast.sync import RunHandle

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
        """`start`, in async code. The handle is for synchronous code; use its id."""
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

    # -- acting -------------------------------------------------------------------------------

    def handle(self, run_id: str) -> RunHandle[Any]:
        """The handle of a run that was started earlier or elsewhere."""
        return self._handle(run_id)

    def signal(
        self, run_id: str, name: str, value: Any = None, *, dedup: str | None = None
    ) -> None:
        """Send a signal; `dedup` is an idempotency key."""
        self._call(lambda client: client.signal(run_id, name, value, dedup=dedup))

    async def asignal(
        self, run_id: str, name: str, value: Any = None, *, dedup: str | None = None
    ) -> None:
        """`signal`, in async code."""
        await _in_thread(self.signal, run_id, name, value, dedup=dedup)

    def cancel(self, run_id: str, reason: str = "cancelled") -> None:
        """Ask a run to stop and compensate."""
        self._call(lambda client: client.cancel(run_id, reason))

    async def acancel(self, run_id: str, reason: str = "cancelled") -> None:
        """`cancel`, in async code."""
        await _in_thread(self.cancel, run_id, reason)

    def pause(self, run_id: str) -> None:
        """Pause a run until it is resumed."""
        self._call(lambda client: client.pause(run_id))

    def resume(self, run_id: str, value: Any = None) -> None:
        """Answer a halt, or resume a paused run."""
        self._call(lambda client: client.resume(run_id, value))

    async def aresume(self, run_id: str, value: Any = None) -> None:
        """`resume`, in async code."""
        await _in_thread(self.resume, run_id, value)

    def retry(self, run_id: str) -> None:
        """Retry a failed run from the step that failed."""
        self._call(lambda client: client.retry(run_id))

    def terminate(self, run_id: str, reason: str = "terminated") -> None:
        """End a run immediately, without its code."""
        self._call(lambda client: client.terminate(run_id, reason))

    def delete(self, run_id: str, *, force: bool = False) -> bool:
        """Delete a run with all its contents; returns whether it existed. `force`: also if it has not ended."""
        return self._call(lambda client: client.delete(run_id, force=force))

    # -- reading ------------------------------------------------------------------------------

    def get(self, run_id: str) -> Run:
        """The record of a run."""
        return self._call(lambda client: client.get(run_id))

    async def aget(self, run_id: str) -> Run:
        """`get`, in async code."""
        return await _in_thread(self.get, run_id)

    def history(self, run_id: str) -> list[Event]:
        """All events of a run."""
        return self._call(lambda client: client.history(run_id))

    def query(self, run_id: str, name: str, type: Any = Any) -> Any:
        """The last value that a run has published under a name."""
        return self._call(lambda client: client.query(run_id, name, type))

    def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """Wait for a run's result. Inside `atomic` this raises unless the run has ended: the transaction does not see
        commits of workers, and workers do not see what it has started."""
        return self._call(lambda client: client.result(run_id, timeout=timeout))

    async def aresult(self, run_id: str, *, timeout: float | None = None) -> Any:
        """`result`, in async code, without blocking a thread."""
        async with asyncio.timeout(timeout):
            while not (await self.aget(run_id)).status.terminal:  # noqa: ASYNC110 - no wake-up comes here
                await asyncio.sleep(POLL_SECONDS)
        return await _in_thread(self.result, run_id)

    def update(self, run_id: str, name: str, value: Any = None, **options: Any) -> Any:
        """Send an update to a run and wait for the answer; see `outlast.App.update`."""
        return self._call(lambda client: client.update(run_id, name, value, **options))

    # -- internals ----------------------------------------------------------------------------

    def _call(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return run_blocking(act(thread_client()))

    def _handle(self, run_id: str) -> RunHandle[Any]:
        return RunHandle(
            run_blocking, AsyncRunHandle(thread_client(), check_id(run_id, child=True))
        )


class ThreadClient(Client):
    """A client on the connection of the calling thread. It refuses to wait inside a transaction."""

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        if not (await self.get(run_id)).status.terminal:
            _refuse_waiting()
        return await super().result(run_id, timeout=timeout)

    async def update(self, run_id: str, *args: Any, **options: Any) -> Any:
        _refuse_waiting()
        return await super().update(run_id, *args, **options)


def thread_client() -> ThreadClient:
    """A client on the connection of the calling thread."""
    settings = read_settings()
    workflows = {one.name: one.definition for one in discover(settings).workflows}
    return ThreadClient(thread_store(settings), codec=settings.codec, workflows=workflows)


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
