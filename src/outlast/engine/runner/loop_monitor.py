"""LoopMonitor: logs which code blocks the program's event loop, while it is blocked.

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
from collections.abc import Iterator
from types import FrameType

from outlast.engine.replay.error_text import location_of
from outlast.engine.replay.event_loop import RunLoop
from outlast.engine.replay.sync_workflow import SyncWorkflowThread
from outlast.engine.steps.step_executor import StepExecutor, call_function

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
