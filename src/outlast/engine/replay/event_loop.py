"""RunLoop: the small event loop on which one run's workflow code lives.

It has a ready queue and nothing else: no selector, no threads, no clock. Workflow code on it can
create tasks and await what outlast offers, so `gather`, `TaskGroup`, `wait` and `timeout` work as
they are; whatever needs the world raises and says to put it into a step. Time stands still except
when an event is delivered, and a timer is a recorded operation, not a callback of the machine.

`drain` runs until nobody is ready. What a task raises is its outcome; what any other callback raises
ends the drain, so that the run is parked with that error and never hangs in silence. Between two drains the engine delivers one recorded completion.
Since the order of deliveries is the order of history, the order in which the code runs is the same
in every replay.
"""

from __future__ import annotations

import asyncio
import inspect
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar, cast

from outlast.engine.replay.asyncio_internals import InsideLoop, drop_silently
from outlast.engine.replay.eviction import exhaust, unwind
from outlast.engine.replay.scope import Scope, current_scope
from outlast.engine.replay.source_location import at_caller, place_of_code
from outlast.errors import WorkflowMisuse

T = TypeVar("T")

MAX_CALLBACKS = 2_000_000
"""So many in a row, without ever coming to rest, are an endless loop."""


class RunLoop:
    """An event loop without a world. One per run; never runs by itself."""

    def __init__(self) -> None:
        self._ready: deque[_Call] = deque()
        self._time = 0.0
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        # Held until they are done: one that waits for nothing is garbage otherwise, and collecting
        # it would run its ``finally`` blocks at a time of its own.
        self._tasks: dict[asyncio.Task[Any], Context] = {}
        self._closing = False
        self.root = Scope()
        self.inside = InsideLoop(self._as_loop, self.close_generator)
        """For as long as it is entered, this is the loop that runs."""

    # -- for the engine -----------------------------------------------------------------------

    def drain(self, now: float) -> None:
        """Let the code run at time `now` until nothing is ready."""
        self._time = now
        ready = self._ready
        with self.inside:
            for _ in range(MAX_CALLBACKS):
                if not ready:
                    return
                call = ready.popleft()
                if not call.is_cancelled:
                    try:
                        call.context.run(call.callback, *call.args)
                    except BaseException as error:
                        if not self._is_outcome(error):
                            if isinstance(error, KeyboardInterrupt):
                                raise  # Ctrl-C, and not what the code has raised
                            raise _callback_failed(call, error) from error
        raise WorkflowMisuse(
            "workflow code goes round in a loop that waits for nothing, such as asyncio.sleep(0): "
            "await a step, a signal or a timer in it"
        )

    def _is_outcome(self, error: BaseException) -> bool:
        """Whether a task has it as its outcome: what wants to exit is raised by its step besides."""
        return any(
            task.done() and not task.cancelled() and task.exception() is error
            for task in self._tasks
        )

    def places(self) -> list[str]:
        """Where the code stands: for each task the innermost line that is the user's."""
        found = (place_of_code(task.get_coro()) for task in self._tasks if not task.done())
        return [place for place in found if place is not None]

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Those that have not ended, in the order in which they were made."""
        return [task for task in self._tasks if not task.done()]

    def close_tasks(self) -> None:
        """Unwind all code that is still on this loop, without cancelling it: cancellation is
        something that workflow code may see and act on, eviction is not."""
        self._closing = True
        self._ready.clear()
        with self.inside:
            for task, context in list(self._tasks.items()):
                if not task.done():
                    drop_silently(task)
                    unwind(task, context)
        self._ready.clear()
        self._tasks.clear()

    def close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Its ``finally`` belongs to the workflow, like all its code: on the program's own loop
        the steps in it would be just functions."""
        if not self._closing:
            self.create_task(generator.aclose())
            return
        with self.inside:
            # Found by the garbage collector at any time: it must not have the scope of who runs then.
            Context().run(exhaust, generator.aclose())

    # -- what workflow code may use -----------------------------------------------------------

    def time(self) -> float:
        return self._time

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Call:
        call = _Call(callback, args, context)
        self._ready.append(call)
        return call

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _TimedCall:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _TimedCall:
        call = _TimedCall(callback, args, context, when)
        call.cancel_timer = self.start_timer(
            max(when - self._time, 0.0), lambda: self._ready.append(call)
        )
        return call

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
        if _is_in_as_completed():
            cast("Coroutine[Any, Any, T]", coro).close()
            raise WorkflowMisuse(
                "asyncio.as_completed() would make tasks of these coroutines in any order, and a "
                "replay in another: make them yourself, "
                "as_completed([asyncio.create_task(one) for one in …])"
            )
        return self.start_task(coro, current_scope.get(self.root).child(), name, context)

    def start_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        scope: Scope,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """A task whose operations get keys in `scope`."""
        context = copy_context() if context is None else context
        context.run(current_scope.set, scope)
        task = _RunTask(coro, scope, loop=self._as_loop, name=name, context=context)
        self._tasks[task] = context
        scope.count_task(1)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        cast("_RunTask[Any]", task).scope.count_task(-1)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Swallow what asyncio would log: an error in a branch reaches whoever awaits it, and a
        branch that nobody awaits has no say in the outcome of a run."""

    # -- what it may not ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        # Not a subclass of AbstractEventLoop, so that whatever is not above ends up here.
        raise WorkflowMisuse(
            f"workflow code tried to reach the world (the loop's {name!r}){at_caller()}: its "
            "result would differ in a replay. Put that into a step and await the step"
        )


def _callback_failed(call: _Call, error: BaseException) -> WorkflowMisuse:
    """What is raised when something fails that nothing awaits: to go on would be to wait for ever for
    what it should have done."""
    name = getattr(call.callback, "__qualname__", None) or repr(call.callback)
    module = getattr(call.callback, "__module__", None)
    where = f"{module}.{name}" if module else name
    return WorkflowMisuse(
        f"the callback {where} on the loop of a run raised {type(error).__name__}: {error}. No code "
        "awaits a callback, so none would notice: await in workflow code instead of call_soon() and "
        "add_done_callback(), or catch the error there. If the callback is asyncio's own, outlast does not "
        "know this version of Python: report it"
    )


class _RunTask(asyncio.Task[T]):
    """A task whose hash is its place in the workflow. asyncio keeps tasks in sets, and `wait` hands
    them out: by their addresses, a replay would go through them in another order."""

    def __init__(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], scope: Scope, **options: Any
    ) -> None:
        # asyncio keeps all tasks of a process in one set, too. There the main tasks of all runs
        # would have one hash, and each new one would be compared with every other.
        self._hash = id(self)
        self.scope = scope
        super().__init__(coro, **options)
        self._hash = zlib.crc32(scope.path.encode())

    def __hash__(self) -> int:
        return self._hash


def _is_in_as_completed() -> bool:
    """Whether it is `asyncio.as_completed` that asks: it has put coroutines into a set."""
    frame = inspect.currentframe()
    for _ in range(8):
        if frame is None:
            break
        if frame.f_code is asyncio.as_completed.__code__:
            return True
        frame = frame.f_back
    return False


class _Call:
    """A call that is to come: what asyncio has a handle for, without what that needs a world for."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = copy_context() if context is None else context
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def cancelled(self) -> bool:
        return self.is_cancelled


class _TimedCall(_Call):
    """One at a time of its own, whose cancellation is known to the run."""

    __slots__ = ("_when", "cancel_timer")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when: float,
    ) -> None:
        super().__init__(callback, args, context)
        self._when = when
        self.cancel_timer: Callable[[], None] = lambda: None

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        if not self.is_cancelled:
            super().cancel()
            self.cancel_timer()
