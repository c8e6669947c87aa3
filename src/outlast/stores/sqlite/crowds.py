"""Crowds: small writes that come in the same turn of an event loop share a transaction.

::

    the first of a turn ──────▶ here and now: most come alone
    those that come behind it ─▶ the end of the turn ─▶ one transaction, one sync for all of them

A hundred callers that wait for a write each would wait for a hundred syncs, one after the other. Those who
shared one come back together, so the turn after a crowd is a crowd from its first on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, TypeVar

from outlast.stores.sqlite.lane import AwaitedJob, Error, Job

Crowd = list[AwaitedJob]
J = TypeVar("J", bound=Job)

SMALL = 256
"""Rows that a transaction in the event loop may write: about two milliseconds' worth."""


class Crowds:
    """Those who wait for the end of their turn, of each loop. Each loop sees only its own. `write` gives
    back those for whom there was no time."""

    def __init__(self, write: Callable[[Crowd], Crowd]) -> None:
        self._write = write
        self._crowds: dict[asyncio.AbstractEventLoop, Crowd] = {}

    def here(self) -> Crowd | None:
        """Where to wait; None for the first of a turn, and for plain code, which go at once."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return None
        crowd = self._crowds.get(loop)
        if crowd is None:
            for other in list(self._crowds):
                if other.is_closed():  # in the midst of a turn
                    self._crowds.pop(other, None)
            self._begin(loop, [])
        return crowd

    def _begin(self, loop: asyncio.AbstractEventLoop, crowd: Crowd) -> None:
        # In this order, so that after Ctrl-C between the two nobody waits for an end that never comes.
        # The context is nobody's: what it carries belongs to one caller, not to all of them.
        loop.call_soon(self._end_of_turn, loop, context=Context())
        self._crowds[loop] = crowd

    def _end_of_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        crowd = self._crowds.pop(loop, [])
        some = first_of(crowd)
        if not some:
            return
        left: Crowd = []
        try:
            left = self._write(some)
        finally:
            if len(crowd) > 1:  # behind those who were told just now
                self._begin(loop, left + crowd[len(some) :])


def first_of(crowd: Crowd) -> Crowd:
    """As many as a transaction in the loop may take."""
    rows = 0
    for number, job in enumerate(crowd):
        rows += job.rows
        if number and rows > SMALL:
            return crowd[:number]
    return crowd


def left_of(jobs: Sequence[J], ends: Sequence[tuple[J, Any, Error]]) -> list[J]:
    """Those of whom nothing is known yet."""
    told = {job for job, _, _ in ends}
    return [job for job in jobs if job not in told]
