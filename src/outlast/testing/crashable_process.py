"""A process that can die, and what it did until then.

It shares the event loop with the test, but sees store and clock only through itself. When it dies,
none of its calls ever returns and no time passes for it: its tasks stay where they are, as after
``kill -9``, and nothing of theirs is finished, unwound or cleaned up before `bury`.
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
from outlast.testing.effect_ledger import Ledger
from outlast.testing.virtual_clock import VirtualClock, Work, clock_of_step
from outlast.testkit.checker import RecordingStore
from outlast.testkit.wrapped_store import WrappedQueue, WrappedStore

T = TypeVar("T")


class Crash(StrEnum):
    """What becomes of a call of the store, and of who made it."""

    BEFORE = "died before"  # nothing was done
    AFTER = "died after"  # it was done
    LOST_ANSWER = "was told an error after"  # it was done, and the caller lives on in doubt


class CrashPoint(Protocol):
    """Decides at each call of the store."""

    def __call__(self, number: int, what: str) -> Crash | None:
        """The crash for the call with this number, or None to let it be."""
        ...


class Process:
    """One life: the store and the clock as it sees them. `sites` are the calls it has made."""

    def __init__(
        self,
        store: Store,
        clock: VirtualClock,
        ledger: Ledger,
        *,
        name: str = "process",
        doom: CrashPoint | None = None,
    ) -> None:
        self.name = name
        self.clock = CrashingClock(self, clock)
        self.ledger = ledger
        self.sites: list[str] = []
        self.struck: str | None = None
        self.dead = False
        self.store = CrashingStore(self, self.reach(RecordingStore(store, ledger.log, name)))
        self._doom = doom
        self._works: set[Work] = set()
        # Held for as long as the process is not buried: a task that waits for nothing is garbage,
        # and collecting it would run its ``finally`` blocks.
        self._tasks: set[asyncio.Task[Any]] = set()
        self._app: App | None = None
        self._buried = False
        self._virtual = clock

    def reach(self, store: Store) -> Store:
        """What lies between it and the store: here, nothing."""
        return store

    def die(self) -> None:
        """Nothing of it moves from now on, but for what is in threads: nobody can stop those, and
        the clock waits for them."""
        self.dead = True
        for work in list(self._works):
            if not work.elsewhere:
                self._virtual.drop(work)

    async def bury(self) -> None:
        """Take what is left of it out of memory; its ``finally`` blocks run now, in vain."""
        self._buried = True
        tasks = [task for task in self._tasks if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._app is not None:
            with suppress(StoreClosed):
                await asyncio.create_task(self._app.close())

    def runs(self, app: App, *tasks: asyncio.Task[Any]) -> None:
        """This is what it does."""
        self._app = app
        self._tasks.update(tasks)

    def joined(self) -> None:
        """The task that is running belongs to it."""
        task = asyncio.current_task()
        if task is not None and task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def alive(self) -> None:
        """Return if it is. Where a dead process is, nothing ever happens again."""
        if self._buried:
            raise StoreClosed(f"{self.name} is dead")
        if self.dead:
            await asyncio.get_running_loop().create_future()

    def fate(self, what: str) -> Crash | None:
        """What becomes of its next call."""
        self.sites.append(what)
        crash = self._doom(len(self.sites), what) if self._doom is not None else None
        if crash is not None:
            self.struck = f"{self.name} {crash} store call {len(self.sites)}, {what}"
        return crash

    @contextmanager
    def working(self, *, elsewhere: bool = True, patience: float | None = None) -> Iterator[None]:
        """ClaimOnCreate the clock as long as it lives."""
        limit = {} if patience is None else {"patience": patience}
        with self._virtual.working(elsewhere=elsewhere, **limit) as work:
            self._works.add(work)
            try:
                yield
            finally:
                self._works.discard(work)


class CrashingClock:
    """The clock of a process that can die; it also writes down the bodies that run."""

    def __init__(self, process: Process, clock: VirtualClock) -> None:
        self._process = process
        self._clock = clock
        self.look_again_after = clock.look_again_after

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        self._process.joined()
        await self._process.alive()
        await self._clock.sleep(seconds)
        await self._process.alive()

    @asynccontextmanager
    async def attempt(self, body: object, *, elsewhere: bool) -> AsyncIterator[None]:
        assert isinstance(body, StepContext)
        process = self._process
        process.joined()
        await process.alive()
        patience = self._clock.patience
        with (
            process.working(elsewhere=elsewhere, patience=patience),
            process.ledger.body(process.name, body),
            clock_of_step(self),
        ):
            yield
        await process.alive()

    def watched(self, store: Store) -> Store:
        return store


class CrashingStore(WrappedStore):
    """The store of a process that can die."""

    def __init__(self, process: Process, inner: Store) -> None:
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
        process.joined()
        await process.alive()
        crash = process.fate(describe(name, args, kwargs))
        if crash is Crash.BEFORE:
            process.die()
            await process.alive()
        with process.working():
            answer = await call()
        if crash is Crash.AFTER:
            process.die()
        await process.alive()
        if crash is Crash.LOST_ANSWER:
            raise UnknownOutcome(f"{name} may or may not have happened")
        return answer


class CrashingQueue(WrappedQueue):
    """The queue of a process that can die. Its calls are no crashes of their own: what matters in
    them is one transaction, as in a call of the store."""

    def __init__(self, process: Process, inner: Queue) -> None:
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
        process.joined()
        await process.alive()
        with process.working():
            answer = await call()
        await process.alive()
        return answer


def describe(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A call, for people: its name and, if it writes, what."""
    if name != "commit":
        return name
    commits: list[Commit] = list(args[0] if args else kwargs["commits"])
    events = [f"{e.type} {e.step_name}".strip() for one in commits for e in one.events]
    return f"commit ({', '.join(events) or 'no events'})"
