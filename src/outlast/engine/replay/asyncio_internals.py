"""The private functions of asyncio that a run's own loop needs: all of them, in one place.

A run's code executes on a loop of its own inside a callback of the program's loop. asyncio has no
public call for that: the running loop and, from Python 3.14 on, the current task are facts of a
thread, so both are put aside while the run's loop is entered and put back afterwards.

`tests/engine/test_asyncio_internals.py` fails on a version of Python where one of these changes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

TASK_IS_OF_THREAD = sys.version_info >= (3, 14)
"""Whether there is one current task in a thread; before, each loop had one."""

running_loop = asyncio._get_running_loop
"""The loop that runs in this thread, or None."""

swap_current_task: Callable[[Any, Any], Any] = getattr(asyncio.tasks, "_swap_current_task", None)  # type: ignore[assignment]
"""Makes a task the current one of the running loop, and returns the one before."""


class InsideLoop:
    """Makes a loop the one that runs in this thread, without a current task, for as long as it is
    entered; async generators that are left open there are closed by `close_generator`. Inside already,
    entering does nothing: a replay enters once for all its events."""

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
    """Let a task that is not done be collected without a warning."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
