"""CrashableProcess: a simulated process that a test can crash.

It shares the event loop with the test, but reaches store and clock only through wrappers. After a
crash none of its calls returns and its clock stands still: its tasks stay suspended, as after
``kill -9``, and run no cleanup before `discard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from outlast.app import App
from outlast.engine.steps.step_executor import StepContext
from outlast.errors import StoreClosed, UnknownOutcome
from outlast.model.commit import Commit
from outlast.ports.clock import Clock
from outlast.ports.queue import Queue
from outlast.ports.store import Store
from outlast.testing.scenario_result import EffectLedger
from outlast.testing.virtual_clock import VirtualClock, Work, clock_of_step
from outlast.testkit.checker import RecordingStore
from outlast.testkit.wrapped_store import WrappedQueue, WrappedStore

T = TypeVar("T")


class Crash(StrEnum):
    """What happens to a store call and to the process that made it."""

    BEFORE = "died before"  # the call was not carried out
    AFTER = "died after"  # the call was carried out
    LOST_ANSWER = (
        "got an error after"  # it was carried out; the process lives on with `UnknownOutcome`
    )


class CrashPoint(Protocol):
    """Decides at each store call whether the process crashes."""

    def __call__(self, number: int, what: str) -> Crash | None:
        """The crash at the call with this number, or None."""
        ...


class CrashableProcess:
    """One process, with its own view of store and clock. `store_calls` are the calls it has made."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        ledger: EffectLedger,
        *,
        name: str = "process",
        crash_point: CrashPoint | None = None,
    ) -> None:
        self.name = name
        self.clock = CrashingClock(self, clock)
        self.ledger = ledger
        self.store_calls: list[str] = []
        self.crashed_at: str | None = None
        self.dead = False
        self.store = CrashingStore(self, self.connect(RecordingStore(store, ledger.log, name)))
        self._crash_point = crash_point
        self._works: set[Work] = set()
        # Referenced until `discard`: a suspended task without references is garbage-collected, and
        # that would run its ``finally`` blocks.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._app: App | None = None
        self._buried = False
        self._virtual = clock

    def connect(self, store: Store) -> Store:
        """The connection to the store; a subclass may wrap it."""
        return store

    def die(self) -> None:
        """Crash. Threads cannot be stopped, so the clock still waits for those."""
        self.dead = True
        for work in list(self._works):
            if not work.elsewhere:
                self._virtual.drop(work)

    async def discard(self) -> None:
        """Remove its tasks from memory. Their ``finally`` blocks run now, without a store."""
        self._buried = True
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._app is not None:
            with suppress(StoreClosed):
                await asyncio.create_task(self._app.close())

    def attach(self, app: App, *tasks: asyncio.Task[Any]) -> None:
        """Register the app and the tasks that this process runs."""
        self._app = app
        self._tasks.update(tasks)

    def adopt_current_task(self) -> None:
        """Register the current task as one of this process."""
        task = asyncio.current_task()
        if task is not None and task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ensure_alive(self) -> None:
        """Return if the process is alive; otherwise never return, or raise after `discard`."""
        if self._buried:
            raise StoreClosed(f"{self.name} is dead")
        if self.dead:
            await asyncio.get_running_loop().create_future()

    def next_crash(self, what: str) -> Crash | None:
        """Count the next store call and decide whether it crashes."""
        self.store_calls.append(what)
        crash = (
            self._crash_point(len(self.store_calls), what)
            if self._crash_point is not None
            else None
        )
        if crash is not None:
            self.crashed_at = f"{self.name} {crash} store call {len(self.store_calls)}, {what}"
        return crash

    @contextmanager
    def working(self, *, elsewhere: bool = True, patience: float | None = None) -> Iterator[None]:
        """Hold the virtual clock while the block runs and the process is alive."""
        limit = {} if patience is None else {"patience": patience}
        with self._virtual.working(elsewhere=elsewhere, **limit) as work:
            self._works.add(work)
            try:
                yield
            finally:
                self._works.discard(work)


class CrashingClock:
    """The clock of a crashable process. It also records step executions in the effect ledger."""

    def __init__(self, process: CrashableProcess, clock: VirtualClock) -> None:
        self._process = process
        self._clock = clock
        self.look_again_after = clock.look_again_after

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._process.adopt_current_task()
        await self._process.ensure_alive()
        await self._clock.sleep(seconds)
        await self._process.ensure_alive()

    @asynccontextmanager
    async def attempt(self, body: object, *, elsewhere: bool) -> AsyncIterator[None]:
        assert isinstance(body, StepContext)
        process = self._process
        process.adopt_current_task()
        await process.ensure_alive()
        patience = self._clock.patience
        with (
            process.working(elsewhere=elsewhere, patience=patience),
            process.ledger.body(process.name, body),
            clock_of_step(self),
        ):
            yield
        await process.ensure_alive()

    def watched(self, store: Store) -> Store:
        return store


class CrashingStore(WrappedStore):
    """The store of a crashable process."""

    def __init__(self, process: CrashableProcess, inner: Store) -> None:
        super().__init__(inner)
        self.clock: Clock = process.clock
        self._process = process

    def queue(self) -> Queue:
        return CrashingQueue(self._process, self.inner.queue())

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        process = self._process
        process.adopt_current_task()
        await process.ensure_alive()
        crash = process.next_crash(describe(name, args, kwargs))
        if crash is Crash.BEFORE:
            process.die()
            await process.ensure_alive()
        with process.working():
            answer = await call()
        if crash is Crash.AFTER:
            process.die()
        await process.ensure_alive()
        if crash is Crash.LOST_ANSWER:
            raise UnknownOutcome(f"{name} may or may not have happened")
        return answer


class CrashingQueue(WrappedQueue):
    """The queue of a crashable process. Queue calls are not crash points: each is one transaction,
    like a store call."""

    def __init__(self, process: CrashableProcess, inner: Queue) -> None:
        super().__init__(inner)
        self.clock = process.clock
        self._process = process

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        process = self._process
        process.adopt_current_task()
        await process.ensure_alive()
        with process.working():
            answer = await call()
        await process.ensure_alive()
        return answer


def describe(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call as text: its name, and the events of a commit."""
    if name != "commit":
        return name
    commits: list[Commit] = list(args[0] if args else kwargs["commits"])
    events = [f"{e.type} {e.step_name}".strip() for one in commits for e in one.events]
    return f"commit ({', '.join(events) or 'no events'})"
