"""Runs: what a view does to runs, inside the transaction that it is in.

::

    with transaction.atomic():
        order = Order.objects.create(...)
        runs.start(checkout(order.pk), id=f"order-{order.pk}")

The run, the signal, the task are rows of the same transaction: they are there when it commits, and
a worker is woken then; with a rollback nothing of them was ever there. Outside of `atomic` each
call is a transaction of its own. In async code there is the same with an `a` in front.
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
from outlast.contrib.django.discovery import found_here
from outlast.contrib.django.store import store_here
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
        """Start a run, for a worker: ``runs.start(checkout(order.pk), id=…)``; options as for
        `outlast.Client.start`."""
        mark_used(call)
        return self._handle(self._call(lambda client: client.start(call, *args, **options)).id)

    async def astart(self, call: Call[R], **options: Unpack[StartOptions]) -> RunHandle[R]:
        """`start`, in async code. The handle is for synchronous code; keep its id."""
        return await _in_thread(self.start, call, **options)

    def start_many(
        self, calls: Mapping[str, Call[Any]] | Iterable[Call[Any]], **options: Any
    ) -> list[str]:
        """Start many runs, and give their ids; see `outlast.Client.start_many`."""
        handles = self._call(lambda client: client.start_many(calls, **options))
        return [handle.id for handle in handles]

    def enqueue(self, queue: str, tasks: Sequence[Task], *, delay: float = 0.0) -> int:
        """Put tasks into a queue, for those who use queues without runs; how many are new."""
        store = store_here(read_settings())
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
        """Send a signal; with `dedup`, once however often this is called."""
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
        """Let a run rest where it is until it is resumed."""
        self._call(lambda client: client.pause(run_id))

    def resume(self, run_id: str, value: Any = None) -> None:
        """Answer a halt, or let a paused run go on."""
        self._call(lambda client: client.resume(run_id, value))

    async def aresume(self, run_id: str, value: Any = None) -> None:
        """`resume`, in async code."""
        await _in_thread(self.resume, run_id, value)

    def retry(self, run_id: str) -> None:
        """Begin a failed run anew from the step that failed."""
        self._call(lambda client: client.retry(run_id))

    def terminate(self, run_id: str, reason: str = "terminated") -> None:
        """End a run now, whoever holds it."""
        self._call(lambda client: client.terminate(run_id, reason))

    def delete(self, run_id: str, *, force: bool = False) -> bool:
        """Remove a run and all it owns; whether it was there. With `force` also one that did not end."""
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
        """What a run has last published under a name."""
        return self._call(lambda client: client.query(run_id, name, type))

    def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """Wait for a run's result. Not inside `atomic`, where nothing that others do is seen, nor
        by others what was started there: unless it has ended already."""
        return self._call(lambda client: client.result(run_id, timeout=timeout))

    async def aresult(self, run_id: str, *, timeout: float | None = None) -> Any:
        """`result`, in async code: no thread is held up meanwhile."""
        async with asyncio.timeout(timeout):
            while not (await self.aget(run_id)).status.terminal:  # noqa: ASYNC110 - no wake-up comes here
                await asyncio.sleep(POLL_SECONDS)
        return await _in_thread(self.result, run_id)

    def update(self, run_id: str, name: str, value: Any = None, **options: Any) -> Any:
        """Ask a run for something and wait for its answer; see `outlast.App.update`."""
        return self._call(lambda client: client.update(run_id, name, value, **options))

    # -- how ----------------------------------------------------------------------------------

    def _call(self, act: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return run_blocking(act(client_here()))

    def _handle(self, run_id: str) -> RunHandle[Any]:
        return RunHandle(run_blocking, AsyncRunHandle(client_here(), check_id(run_id, child=True)))


class ClientHere(Client):
    """A client on the connection that the calling thread has. It waits for nothing that cannot
    come."""

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        if not (await self.get(run_id)).status.terminal:
            _refuse_waiting()
        return await super().result(run_id, timeout=timeout)

    async def update(self, run_id: str, *args: Any, **options: Any) -> Any:
        _refuse_waiting()
        return await super().update(run_id, *args, **options)


def client_here() -> ClientHere:
    """A client on the connection that the calling thread has."""
    settings = read_settings()
    workflows = {one.name: one.definition for one in found_here(settings).workflows}
    return ClientHere(store_here(settings), codec=settings.codec, workflows=workflows)


def _refuse_waiting() -> None:
    alias = read_settings().database
    if connections[alias].in_atomic_block:
        raise WorkflowMisuse(
            f"waiting for a run inside a transaction on {alias!r} would wait for ever: workers see "
            "what was done here when it commits. Wait after transaction.atomic(), with "
            "ATOMIC_REQUESTS in a view with @transaction.non_atomic_requests, or use "
            "transaction.on_commit()"
        )


async def _in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    # In the thread that Django keeps for this: the one whose connection `sync_to_async` code has.
    found: T = await sync_to_async(function, thread_sensitive=True)(*args, **options)
    return found


runs = Runs()
