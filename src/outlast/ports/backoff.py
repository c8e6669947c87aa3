"""Backoff: how long to wait before the next try, and reads that are retried.

Pauses grow by a factor up to a longest one. A `Backoff` counts the tries of one call and is not shared.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlast.errors import TryAgain
from outlast.ports.clock import Clock

READ_TRIES = 4
TIMEOUT_FACTOR = 4
"""Each further try may take this many times longer: a long history needs more time than one call gets."""

log = logging.getLogger("outlast.engine")
T = TypeVar("T")


class Backoff:
    """The pauses between the tries of one call: `first_s`, then `factor` times longer each, up to `longest_s`."""

    __slots__ = ("_factor", "_longest_s", "_next_s")

    def __init__(self, first_s: float, longest_s: float, *, factor: float = 2.0) -> None:
        self._next_s = first_s
        self._longest_s = longest_s
        self._factor = factor

    def next_s(self) -> float:
        """The seconds to wait before the next try."""
        pause_s = min(self._next_s, self._longest_s)
        self._next_s = pause_s * self._factor
        return pause_s

    async def wait(self, clock: Clock) -> None:
        """Sleep on `clock` until the next try."""
        await clock.sleep(self.next_s())


async def read_with_retry(
    clock: Clock,
    read: Callable[[float], Awaitable[T]],
    timeout_s: float,
    *,
    tries: int | None = READ_TRIES,
) -> T:
    """Call `read` with a timeout in seconds, and again if the store fails. The owner of a claim reads this
    way: giving up would cut off the steps of its run, and a read without a timeout could wait for ever on a
    dead connection while the lease is renewed on another. With `tries=None` there is no limit but the
    cancellation of the caller."""
    backoff, failed = Backoff(0.1, 2.5, factor=5), 0
    longest_s = timeout_s * TIMEOUT_FACTOR ** (READ_TRIES - 1)
    while True:
        try:
            return await read(timeout_s)
        except (TryAgain, OSError) as error:
            failed += 1
            if failed == tries:
                raise
            log.warning("reading failed, trying again: %s", error)
            await backoff.wait(clock)
            timeout_s = min(timeout_s * TIMEOUT_FACTOR, longest_s)
