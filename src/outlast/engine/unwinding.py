"""Throwing out code that waits: it is closed, not cancelled, and whatever it does then is not heard."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any

MAX_CLOSINGS = 1_000
"""How often code that is thrown out may catch that and wait again."""


def unwind(task: asyncio.Task[Any], context: Context) -> None:
    """Close code until it is closed, from the inside out: a ``finally`` of asyncio's own, such as a
    TaskGroup's, waits once more, and an outer coroutine takes that for an error and lets go of the
    inner one. Whatever is left half open would be closed by the garbage collector, where the steps
    in it are just functions."""
    coroutine = task.get_coro()
    for _ in range(MAX_CLOSINGS):
        inner = _innermost(coroutine)
        if inner is None:
            return
        # It may wait once more, or raise: code is thrown out, and nobody is there to hear it.
        with suppress(BaseException):
            context.run(inner.close)


def exhaust(closing: Coroutine[Any, Any, None]) -> None:
    """Run what closes an async generator to its end, whatever it waits for."""
    for _ in range(MAX_CLOSINGS):
        try:
            closing.send(None)
        except BaseException:  # noqa: BLE001 - code is thrown out: nobody is there to hear it
            return


def _innermost(awaited: Any) -> Coroutine[Any, Any, Any] | Generator[Any, Any, Any] | None:
    """What a coroutine waits in, all the way down; None if it is closed."""
    found = None
    while inspect.iscoroutine(awaited) or inspect.isgenerator(awaited):
        frame = awaited.cr_frame if inspect.iscoroutine(awaited) else awaited.gi_frame
        if frame is None:
            break
        found = awaited
        awaited = awaited.cr_await if inspect.iscoroutine(awaited) else awaited.gi_yieldfrom
    return found
