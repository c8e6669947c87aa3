"""RunLoop: the small event loop on which the workflow code of one run executes.

It has a ready queue and no selector, threads or clock. Workflow code on it can create tasks and await outlast's
operations, so `gather`, `TaskGroup`, `wait` and `timeout` work unchanged. Every other method of an event loop raises
and says to use a step. Time stands still except when an event is delivered, and a timer is a recorded operation.

`drain` runs until nothing is ready. What a task raises is its outcome. What any other callback raises ends the drain:
the run is parked with that error and does not hang. Between two drains the engine delivers one event. Since the order
of deliveries is the order of history, the code runs in the same order in every replay.

The private functions of asyncio that this needs are all in this file (`InsideLoop`, `drop_silently`);
`tests/unit/engine/test_asyncio_internals.py` fails on a version of Python that changes one of them.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from types import CoroutineType
from typing import Any, NoReturn, TypeVar, cast

from outlast.engine.replay.error_text import at_caller, location_of_coroutine
from outlast.engine.replay.eviction import exhaust, unwind
from outlast.errors import WorkflowMisuse


class Scope:
    """The position of one task in the tree of tasks. It names operations by where they are requested, not when.

    Every task has a scope, named by its parent's scope and the order in which the parent created it. The key of an
    operation is its scope, its name, and how many of that name the scope has requested. So two branches of a
    `gather` never change each other's keys, whichever is faster::

        charge          the first call of charge in the workflow itself
        charge#2        the second
        1/ship          the first call of ship in the second task that the workflow created
        1/0/ship#3      the third one in the first task that *that* task created
    """

    __slots__ = ("_children", "_counts", "outer", "path", "tasks_inside")

    def __init__(self, path: str = "", outer: Scope | None = None) -> None:
        self.path = path
        self.tasks_inside = 0
        """How many tasks created here, or in inner scopes, have not ended."""
        self.outer = outer
        self._children = 0
        self._counts: dict[str, int] = {}

    def child(self) -> Scope:
        """The scope of the next task that this one creates."""
        scope = Scope(f"{self.path}{self._children}/", self)
        self._children += 1
        return scope

    def count_task(self, change: int) -> None:
        """Count a task of this scope that has started (1) or ended (-1) in all outer scopes."""
        outer = self.outer
        while outer is not None:
            outer.tasks_inside += change
            outer = outer.outer

    def key(self, name: str) -> str:
        """The key of the next operation called `name` here."""
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return f"{self.path}{name}" if count == 1 else f"{self.path}{name}#{count}"


current_scope: ContextVar[Scope] = ContextVar("outlast_scope")


@contextmanager
def inside_scope(scope: Scope) -> Iterator[None]:
    """Operations that are requested in the block belong to `scope`."""
    outside = current_scope.set(scope)
    try:
        yield
    except GeneratorExit:
        raise  # the garbage collector closes abandoned code, in a context of its own
    except BaseException:
        current_scope.reset(outside)
        raise
    current_scope.reset(outside)


TASK_IS_OF_THREAD = sys.version_info >= (3, 14)
"""Whether the current task belongs to the thread; before 3.14 each loop had one."""

running_loop = asyncio._get_running_loop
"""The loop that runs in this thread, or None."""

swap_current_task: Callable[[Any, Any], Any] = getattr(asyncio.tasks, "_swap_current_task", None)  # type: ignore[assignment]
"""Makes a task the current one of the running loop, and returns the previous one."""


class InsideLoop:
    """While entered, makes a loop the running one of this thread, without a current task. asyncio has no public call
    for that: the running loop and, from Python 3.14 on, the current task belong to the thread, so both are saved and
    restored. Async generators that are left open inside are closed by `close_generator`. Entering again does
    nothing: a replay enters once for all its events."""

    __slots__ = ("_close_generator", "_depth", "_hooks", "_loop", "_outside", "_task")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        close_generator: Callable[[AsyncGenerator[Any, Any]], None],
    ) -> None:
        self._loop = loop
        self._close_generator = close_generator
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._outside = outside = running_loop()
            if TASK_IS_OF_THREAD:
                self._task = None if outside is None else swap_current_task(outside, None)
            asyncio._set_running_loop(self._loop)
            self._hooks = sys.get_asyncgen_hooks()
            sys.set_asyncgen_hooks(firstiter=None, finalizer=self._close_generator)

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            sys.set_asyncgen_hooks(*self._hooks)
            asyncio._set_running_loop(self._outside)
            if TASK_IS_OF_THREAD and self._outside is not None:
                swap_current_task(self._outside, self._task)


def drop_silently(task: asyncio.Task[Any]) -> None:
    """Let a task that is not done be garbage-collected without a warning."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]


T = TypeVar("T")

MAX_CALLBACKS = 2_000_000
"""This many callbacks in one drain count as an endless loop."""


class RunLoop:
    """An event loop without I/O, one per run. It runs only in `drain`."""

    def __init__(self) -> None:
        self._ready: deque[_Call] = deque()
        self._time = 0.0
        self._as_loop = cast(asyncio.AbstractEventLoop, self)
        # Held until they are done: otherwise the garbage collector could run the ``finally`` blocks of a task that
        # waits for nothing at any time.
        self._tasks: dict[asyncio.Task[Any], Context] = {}
        self._closing = False
        self.root = Scope()
        self.inside = InsideLoop(self._as_loop, self.close_generator)
        """While entered, this is the running loop of the thread."""

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
                                raise  # Ctrl-C, not an error of the code
                            raise _callback_failed(call, error) from error
        raise WorkflowMisuse(
            "workflow code runs in a loop that waits for nothing, such as asyncio.sleep(0): "
            "await a step, a signal or a timer in it"
        )

    def _is_outcome(self, error: BaseException) -> bool:
        """Whether it is the outcome of a task: asyncio also raises SystemExit and KeyboardInterrupt out of it."""
        return any(
            task.done() and not task.cancelled() and task.exception() is error
            for task in self._tasks
        )

    def locations(self) -> list[str]:
        """Where the code waits: for each task the innermost line of the user's code."""
        found = (location_of_coroutine(task.get_coro()) for task in self._tasks if not task.done())
        return [location for location in found if location is not None]

    def tasks(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, in the order of their creation."""
        return [task for task in self._tasks if not task.done()]

    def close_tasks(self) -> None:
        """Unwind all code on this loop without cancelling it: workflow code may react to a cancellation, but not to
        its eviction."""
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
        """Close an async generator on this loop: on the program's loop the steps in its ``finally`` would be plain
        function calls."""
        if not self._closing:
            self.create_task(generator.aclose())
            return
        with self.inside:
            # The garbage collector may call this at any time: not in the scope of the task that runs then.
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
                "asyncio.as_completed() creates tasks of these coroutines in an order that differs in a "
                "replay: create them yourself, "
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
        """Create a task whose operations get keys in `scope`."""
        if type(coro) is not CoroutineType and hasattr(coro, "to_coroutine"):
            coro = cast("Any", coro).to_coroutine()  # the call of a workflow
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
        """Log nothing: an error in a task reaches the code that awaits it, and a task that is never awaited does not
        change the outcome of a run."""

    # -- what it may not ----------------------------------------------------------------------

    def __getattr__(self, name: str) -> NoReturn:
        # Not a subclass of AbstractEventLoop, so that every method that is not defined above ends up here.
        raise WorkflowMisuse(
            f"workflow code used the event loop's {name!r}{at_caller()}: its result would differ in a "
            "replay. Put that into a step and await the step"
        )


def _callback_failed(call: _Call, error: BaseException) -> WorkflowMisuse:
    """The error of a callback that no code awaits: to continue would be to wait for ever for its effect."""
    name = getattr(call.callback, "__qualname__", None) or repr(call.callback)
    module = getattr(call.callback, "__module__", None)
    where = f"{module}.{name}" if module else name
    return WorkflowMisuse(
        f"the callback {where} on the loop of a run raised {type(error).__name__}: {error}. No code "
        "awaits a callback, so the error would be lost: use await in workflow code instead of call_soon() and "
        "add_done_callback(), or catch the error there. If the callback is asyncio's own, outlast does not "
        "support this version of Python: report it"
    )


class _RunTask(asyncio.Task[T]):
    """A task whose hash is its scope. asyncio keeps tasks in sets, and `wait` returns them: hashed by address, their
    order would differ in a replay."""

    def __init__(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], scope: Scope, **options: Any
    ) -> None:
        # asyncio also keeps all tasks of a process in one set. There the main tasks of all runs would have the
        # same hash, and each new one would be compared with every other.
        self._hash = id(self)
        self.scope = scope
        super().__init__(coro, **options)
        self._hash = zlib.crc32(scope.path.encode())

    def __hash__(self) -> int:
        return self._hash


def _is_in_as_completed() -> bool:
    """Whether `asyncio.as_completed` is the caller: it puts coroutines into a set."""
    frame = inspect.currentframe()
    for _ in range(8):
        if frame is None:
            break
        if frame.f_code is asyncio.as_completed.__code__:
            return True
        frame = frame.f_back
    return False


class _Call:
    """A scheduled call: an `asyncio.Handle` without what that needs of an event loop."""

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
    """A call at a moment. Cancelling it cancels its durable timer."""

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
