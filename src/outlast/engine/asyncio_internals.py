"""The private functions of asyncio that a run's own loop needs: all of them, in one place.

A run's code executes on a loop of its own inside a callback of the program's loop. asyncio has no
public call for that: the running loop and, from Python 3.14 on, the current task are facts of a
thread, so both are put aside while the run's loop is entered and put back afterwards.

`tests/engine/test_asyncio_internals.py` fails on a version of Python where one of these changes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

running_loop = asyncio._get_running_loop
"""The loop that runs in this thread, or None."""

if sys.version_info >= (3, 14):
    from asyncio.tasks import _swap_current_task

    def enter_loop(loop: asyncio.AbstractEventLoop) -> Outside:
        """Make `loop` the one that runs in this thread, without a current task; returns what
        `leave_loop` puts back."""
        outside = running_loop()
        task = None if outside is None else _swap_current_task(outside, None)
        asyncio._set_running_loop(loop)
        return outside, task

    def leave_loop(outside: Outside) -> None:
        """Put back what `enter_loop` has put aside."""
        loop, task = outside
        asyncio._set_running_loop(loop)
        if loop is not None:
            _swap_current_task(loop, task)

else:  # the current task is kept for each loop

    def enter_loop(loop: asyncio.AbstractEventLoop) -> Outside:
        """Make `loop` the one that runs in this thread; returns what `leave_loop` puts back."""
        outside = running_loop()
        asyncio._set_running_loop(loop)
        return outside, None

    def leave_loop(outside: Outside) -> None:
        """Put back what `enter_loop` has put aside."""
        asyncio._set_running_loop(outside[0])


Outside = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]


def drop_silently(task: asyncio.Task[Any]) -> None:
    """Let a task that is not done be collected without a warning."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
