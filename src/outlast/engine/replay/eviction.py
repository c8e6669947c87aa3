"""Eviction: closes code that leaves memory. It is closed, not cancelled, and nothing that it does then is recorded."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any

MAX_CLOSINGS = 1_000
"""How often evicted code may catch the eviction and wait again."""


def unwind(task: asyncio.Task[Any], context: Context) -> None:
    """Close the coroutine of a task from the inside out until it is closed. A ``finally`` of asyncio's own, such as a
    TaskGroup's, waits once more; an outer coroutine takes that for an error and drops the inner one. A coroutine
    that is left half open would be closed by the garbage collector, where the steps in it are plain function calls."""
    coroutine = task.get_coro()
    for _ in range(MAX_CLOSINGS):
        inner = _innermost(coroutine)
        if inner is None:
            return
        # It may wait once more, or raise: nothing that evicted code does counts.
        with suppress(BaseException):
            context.run(inner.close)


def exhaust(closing: Coroutine[Any, Any, None]) -> None:
    """Run the closing of an async generator to its end, whatever it awaits."""
    for _ in range(MAX_CLOSINGS):
        try:
            closing.send(None)
        except BaseException:  # noqa: BLE001 - nothing that evicted code raises counts
            return


def _innermost(awaited: Any) -> Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | None:
    """The innermost coroutine or generator that a coroutine awaits; None if it is closed."""
    found = None
    while inspect.iscoroutine(awaited) or inspect.isgenerator(awaited):
        frame = awaited.cr_frame if inspect.iscoroutine(awaited) else awaited.gi_frame
        if frame is None:
            break
        found = awaited
        awaited = awaited.cr_await if inspect.iscoroutine(awaited) else awaited.gi_yieldfrom
    return found
