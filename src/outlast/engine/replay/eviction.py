"""ResidencyPolicy: how long a run stays in memory, and when its history is summed up in a snapshot.

The defaults are for speed. Tests choose others, so that what is rare in production (a snapshot, a
replay) happens at every commit: one place for the engine, its claims and its digests alike.

Throwing out code that waits: it is closed, not cancelled, and whatever it does then is not heard.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any

from msgspec import Struct

from outlast.errors import InvalidValue

SNAPSHOT_AFTER = 256


class ResidencyPolicy(Struct, frozen=True, kw_only=True):
    """`snapshot_after`: a history with fewer events than this is read faster than a snapshot is
    looked for. `growth`: the next snapshot comes when the digest has grown by this share of the
    last one, so that a long run writes its digest a few times, not once per event. `evicts`: a run
    leaves memory with every commit that has brought it further, as soon as none of its steps runs,
    and is resumed from the store."""

    snapshot_after: int = SNAPSHOT_AFTER
    growth: float = 1.0
    evicts: bool = False

    def __post_init__(self) -> None:
        if self.snapshot_after < 1 or self.growth < 0:
            raise InvalidValue(
                f"snapshot_after={self.snapshot_after}, growth={self.growth}: a snapshot needs at "
                "least one event, and no digest shrinks; use snapshot_after ≥ 1 and growth ≥ 0"
            )

    def due_after(self, snapshotted: int) -> int:
        """How many events a digest has when its next snapshot is due, after one of so many."""
        return snapshotted + max(self.snapshot_after, int(snapshotted * self.growth))


USUAL = ResidencyPolicy()

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
