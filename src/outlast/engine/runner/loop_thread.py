"""LoopThread: one coroutine on an event loop in a daemon thread of its own, beside the program's event loop. It
continues while that loop is blocked: the renewal of leases.

LoopMonitor: logs which code blocks the program's event loop, while it is blocked.

Workflow code and async steps share one thread with the rest of the program. If one of them sleeps, computes or reads
without awaiting, nothing else advances; only leases are renewed, in their own thread. The blocking code cannot be
interrupted, but another thread can read its stack and log the source location and what to do.

::

    monitor thread ── call_soon_threadsafe ──▶ loop     answers at once, unless it is blocked
                   ◀──────── answer ──────────
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from outlast.engine.replay.error_text import location_of
from outlast.engine.replay.event_loop import RunLoop
from outlast.engine.replay.sync_workflow import SyncWorkflowThread
from outlast.engine.steps.step_executor import StepExecutor, call_function

log = logging.getLogger("outlast.engine")


class LoopThread:
    """Runs `main` from `start` to `stop`. It shares only `call` with the loop that started it. If `main` ends without
    `stop`, that is logged, and `on_end` is called in that loop."""

    def __init__(
        self,
        main: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        *,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._main = main
        self._name = name
        self._on_end = on_end
        self._is_stopping = False
        self._over: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Start, for the running loop. Raises `RuntimeError` if the system has no thread left."""
        self._home = asyncio.get_running_loop()
        self._over = self._home.create_future()
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        try:
            start_daemon(self._run, self._name)
        except RuntimeError:
            self._loop.close()
            raise

    async def stop(self) -> None:
        """Cancel `main`, and wait until the thread has ended. Stopping twice is fine."""
        if self._over is not None:
            self._is_stopping = True
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._cancel)
            await asyncio.shield(self._over)

    def call(self, function: Callable[..., object], *args: object) -> None:
        """Call a function in the loop that started this thread."""
        with suppress(RuntimeError):  # that loop is closed
            self._home.call_soon_threadsafe(function, *args)

    def _cancel(self) -> None:
        self._task.cancel()

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        error: BaseException | None = None
        self._task = loop.create_task(self._main())
        try:
            loop.run_until_complete(asyncio.wait([self._task]))
            loop.run_until_complete(loop.shutdown_default_executor())
            error = None if self._task.cancelled() else self._task.exception()
        except BaseException as unforeseen:  # noqa: BLE001 - it would be lost with the thread
            error = unforeseen
        finally:
            if error is not None or not self._is_stopping:
                log.error("%s has ended: %r", self._name, error or "it was not stopped")
            asyncio.set_event_loop(None)
            loop.close()
            if not self._is_stopping:
                self.call(self._on_end)
            self.call(self._end)

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)


def start_daemon(target: Callable[[], None], name: str) -> threading.Thread:
    """A started thread. A program that ends without closing does not wait for it."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


BLOCKED_AFTER_S = 1.0
"""A loop that does not answer for this long is blocked."""

log = logging.getLogger("outlast.engine")


class LoopMonitor:
    """A thread that monitors the event loop that was running at `start`."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def start(self) -> None:
        """Start to monitor the running loop."""
        loop, thread = asyncio.get_running_loop(), threading.get_ident()
        watching = threading.Thread(
            target=self._watch, args=(loop, thread), name="outlast-watch", daemon=True
        )
        watching.start()

    def stop(self) -> None:
        """Stop. Stopping twice is fine."""
        self._over.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, thread: int) -> None:
        while not self._over.wait(BLOCKED_AFTER_S):
            answer = threading.Event()
            try:
                loop.call_soon_threadsafe(answer.set)
            except RuntimeError:
                return  # the loop is closed
            if not answer.wait(BLOCKED_AFTER_S) and not self._over.is_set():
                blamed = blame(thread)
                if blamed is not None:
                    log.error("%s", blamed)
                while not answer.wait(BLOCKED_AFTER_S) and not self._over.is_set():
                    pass  # logged once


def blame(thread: int) -> str | None:
    """Which workflow or step blocks the thread of the loop, where, and what to do; None if it is other code."""
    stack = list(_stack(thread))  # the innermost first
    who = next(filter(None, map(_caller, stack)), None)
    place = next(filter(None, (location_of(one.f_code, one.f_lineno) for one in stack)), None)
    if who is None or place is None:
        return None
    return (
        f"{who} blocks the event loop at {place}: no other run advances meanwhile. "
        "Put what takes long into a step that is a plain `def` (it runs in a thread), or await it"
    )


def _caller(frame: FrameType) -> str | None:
    if frame.f_code is RunLoop.drain.__code__:
        execution = getattr(frame.f_locals["self"], "execution", None)
        if execution is not None:
            return f"workflow {execution.workflow.name!r} (run {execution.run_id!r})"
    if frame.f_code in (StepExecutor.attempt.__code__, call_function.__code__):
        return f"step {frame.f_locals['step'].name!r}"
    return None


def _stack(thread: int) -> Iterator[FrameType]:
    """The frames of a thread, innermost first; with those of the thread of a `def` workflow that it waits for."""
    # A documented function, for debuggers.
    frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    stack = list(_outward(frames.get(thread)))
    for frame in stack:
        if frame.f_code is SyncWorkflowThread.run_thread.__code__:
            name = f"outlast-{frame.f_locals['self'].execution.run_id}"
            for other in threading.enumerate():
                if other.name == name and other.ident is not None:
                    yield from _outward(frames.get(other.ident))
    yield from stack


def _outward(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
