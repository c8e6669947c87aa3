"""RunLoop: the small event loop on which one run's workflow code lives.

It has a ready queue and nothing else: no selector, no threads, no clock. Workflow code on it can
create tasks and await what outlast offers, so `gather`, `TaskGroup`, `wait` and `timeout` work as
they are; whatever needs the world raises and says to put it into a step. Time stands still except
when an event is delivered, and a timer is a recorded operation, not a callback of the machine.

`drain` runs until nobody is ready. Between two drains the engine delivers one recorded completion.
Since the order of deliveries is the order of history, the order in which the code runs is the same
in every replay.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, cast

from outlast.engine.scope import Scope, current_scope
from outlast.errors import WorkflowMisuse

T = TypeVar("T")


class RunLoop:
    """An event loop without a world. One per run; never runs by itself."""

    def __init__(self) -> None:
        self._ready: deque[asyncio.Handle] = deque()
        self._time = 0.0
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.root = Scope()

    # -- for the engine -----------------------------------------------------------------------

    def drain(self, now: float) -> None:
        """Let the code run at time `now` until nothing is ready."""
        self._time = now
        outside = asyncio._get_running_loop()
        asyncio._set_running_loop(self._as_loop)
        try:
            while self._ready:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(outside)

    def close_tasks(self) -> None:
        """Unwind all code that is still on this loop, without cancelling it: cancellation is
        something that workflow code may see and act on, eviction is not."""
        self._ready.clear()
        outside = asyncio._get_running_loop()
        asyncio._set_running_loop(self._as_loop)
        try:
            for task in list(self._tasks):
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    _unwind(task)
        finally:
            self._ready.clear()
            asyncio._set_running_loop(outside)

    # -- what workflow code may use -----------------------------------------------------------

    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self._as_loop, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = _DurableHandle(when, callback, args, self._as_loop, context)
        handle.cancel_timer = self.start_timer(
            max(when - self._time, 0.0), lambda: self._ready.append(handle)
        )
        return handle

    def start_timer(self, seconds: float, fire: Callable[[], None]) -> Callable[[], None]:
        """Ask for a durable timer that calls `fire`; returns how to cancel it."""
        raise WorkflowMisuse("this loop has no timers")

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        return self.start_task(coro, current_scope.get(self.root).child(), name, context)

    def start_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        scope: Scope,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task whose operations get keys in `scope`."""
        context = context or copy_context()
        context.run(current_scope.set, scope)
        task = asyncio.Task(coro, loop=self._as_loop, name=name, context=context)
        self._tasks.add(task)
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Swallow what asyncio would log: an error in a branch reaches whoever awaits it, and a
        branch that nobody awaits has no say in the outcome of a run."""

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells its loop of a cancelled timer; `_DurableHandle` has done that."""

    # -- what it may not ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        # Not a subclass of AbstractEventLoop, so that whatever is not above ends up here.
        raise WorkflowMisuse(
            f"workflow code tried to reach the world (the loop's {name!r}): its result would "
            "differ in a replay. Put that into a step and await the step"
        )


class _DurableHandle(asyncio.TimerHandle):
    """A timer handle whose cancellation is known to the run."""

    cancel_timer: Callable[[], None]

    def cancel(self) -> None:
        if not self.cancelled():
            super().cancel()
            self.cancel_timer()


def _unwind(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except BaseException:  # noqa: BLE001 - user code is thrown out: nobody is there to hear it
        return
