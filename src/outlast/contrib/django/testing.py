"""Runs in Django's tests: executed in the test's own thread, on its own connection.

::

    class CheckoutTest(RunsMixin, TestCase):
        def test_an_order_is_shipped(self):
            self.client.post("/orders", {...})      # starts a run
            self.run_all()                          # executes everything that can run
            self.assertEqual(Run.objects.get().status, "completed")

A `TestCase` never commits, so a worker on another connection cannot see its runs. Here the engine runs in a
second thread, and every database access, including steps, is executed in the test's thread, which waits
for it::

    the test's thread   run_all ── statement ── step ── statement ── … ── returns
                              ▲ one at a time, on the connection that the test has
    a second thread     event loop ── engine

Tests do not wait for time: when nothing else can run, the clock jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections
from django.db.models import Max
from django.test import TestCase

from outlast.app import App
from outlast.contrib.django.client import runs
from outlast.contrib.django.conf import Settings, read_settings
from outlast.contrib.django.models import Run
from outlast.contrib.django.threads import HeldTransaction
from outlast.contrib.django.worker import app
from outlast.engine.replay.commit_builder import ticket_queue
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.testing.virtual_clock import VirtualClock

T = TypeVar("T")


def run_all(*, through_time: bool = True, **options: Any) -> None:
    """Execute runs like a worker, until no run can advance: each has ended, or waits for a message. With
    ``through_time=False`` timers are not awaited. Raises the error that prevents the worker from claiming
    runs. `options` are those of `outlast.App`."""
    hands = _ServingThread()
    settings = read_settings()
    # The clock must not be behind the times in the database.
    last_change = Run.objects.aggregate(at=Max("updated_at"))["at"]
    present = datetime.now(UTC)

    async def work() -> None:
        clock = VirtualClock(max(present, last_change or present))
        store = _store_in(hands, settings, clock)
        with clock.hold():
            async with app(store, threads=hands, **options) as opened:
                await _settle(opened, store, clock, through_time=through_time)

    hands.serve(work)


async def arun_all(**options: Any) -> None:
    """`run_all`, in an async test."""
    await sync_to_async(run_all, thread_sensitive=True)(**options)


def delete_all_runs() -> int:
    """Delete all runs and return how many there were: a `TransactionTestCase` truncates only the tables that
    Django manages."""
    ids = list(Run.objects.values_list("id", flat=True))
    return sum(runs.get(id).delete(force=True) for id in ids)


class RunsMixin:
    """For a `TestCase` or a `TransactionTestCase`; the latter deletes its runs at the end."""

    run_all = staticmethod(run_all)
    arun_all = staticmethod(arun_all)

    def setUp(self) -> None:
        """Register the cleanup."""
        super().setUp()  # type: ignore[misc]
        if not isinstance(self, TestCase):
            self.addCleanup(delete_all_runs)  # type: ignore[attr-defined]


async def _settle(app: App, store: Store, clock: VirtualClock, *, through_time: bool) -> None:
    """Run until idle. A run may wait for a time in the store, or in a queue."""
    queue = store.queue()
    tickets = [ticket_queue(q, name) for q in app.queue_names for name in app.workflow_names]
    while True:
        await clock.settle()
        if app.claim_error is not None:
            raise app.claim_error
        now = clock.now()
        times = (await store.next_runnable_at(), await queue.next_ready_at(tickets))
        later = [at for at in times if at is not None and at > now]
        if not later or not through_time:
            return
        clock.advance((min(later) - now + timedelta(microseconds=1)).total_seconds())


class _ServingThread(Executor):
    """The waiting thread as an executor: it runs the functions that other threads submit."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit a function to the thread that serves."""
        future: Future[T] = Future()

        def job() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - it belongs to who waits for it
                    future.set_exception(error)

        self._jobs.put(job)
        return future

    def serve(self, work: Callable[[], Any]) -> None:
        """Run submitted functions until `work`, in another thread, has ended."""
        outcome: list[BaseException] = []

        def beside() -> None:
            try:
                asyncio.run(work())
            except BaseException as error:  # noqa: BLE001 - raised below
                outcome.append(error)
            finally:
                self._jobs.put(None)

        thread = threading.Thread(target=beside, name="outlast-test")
        thread.start()
        while (job := self._jobs.get()) is not None:
            job()
        thread.join()
        if outcome:
            raise outcome[0]


class _Transactions(Store):
    """Transactional steps in the thread of the test, each a savepoint of its transaction."""

    plain_transactions = True
    hands: _ServingThread
    alias: str

    def sibling(self) -> Any:
        return None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[Any, Store]]:
        held = HeldTransaction(self.alias, self.hands)
        await held.begin(self._connect)
        try:
            yield held, self
        except BaseException as error:
            await held.end(error)
            raise
        await held.end(None)

    def _connect(self) -> None:
        # In the test's thread: a Django connection belongs to the thread that asks for it.
        connections[self.alias].ensure_connection()


def _store_in(hands: _ServingThread, settings: Settings, clock: Clock) -> Store:
    """The store on the connection of the thread that serves."""
    alias = settings.database
    if connections[alias].vendor == "postgresql":
        from outlast.contrib.django.postgres import PREFIX, HeldSource, ThreadConnectionSource
        from outlast.stores.postgres import PostgresStore
        from outlast.stores.postgres.transaction import TransactionStore as PostgresBorrowed

        class OnPostgres(_Transactions, PostgresBorrowed):
            pass

        lender: Any = PostgresStore(
            ThreadConnectionSource(alias),
            schema=settings.schema,
            prefix=PREFIX,
            notify=False,
            clock=clock,
        )
        store: Any = OnPostgres(lender, HeldSource(HeldTransaction(alias, hands)))
    else:
        from outlast.contrib.django.store import lender_of, on_connection
        from outlast.stores.sqlite.transaction import TransactionStore as SqliteBorrowed

        class OnSqlite(_Transactions, SqliteBorrowed):
            pass

        async def borrow(work: Callable[[Any], T], /) -> T:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(hands, on_connection, alias, work)

        store = OnSqlite(lender_of(alias, clock), borrow)
    store.hands, store.alias = hands, alias
    found: Store = store
    return found
