"""Reading by the owner of a claim.

A lease is renewed on a connection of its own. So an answer that never comes, because the network has
lost the other end of a connection, would keep a run for ever: held, renewed, and going nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlast.errors import TryAgain
from outlast.ports.clock import Clock

PAUSES_S = (0.1, 0.5, 2.5)
LONGER = 4
"""How many times longer each try may take: a long history is not read in the time of a call."""

log = logging.getLogger("outlast.engine")
T = TypeVar("T")


async def patiently(
    clock: Clock,
    read: Callable[[float], Awaitable[T]],
    patience: float,
    *,
    tries: int | None = len(PAUSES_S) + 1,
) -> T:
    """Read, within a time that `read` is given (`patience` seconds at first), and read again if the
    store fails: giving the run up would cut off its steps. With `tries=None` for as long as the
    caller waits, which is as long as it holds its claim."""
    longest, failed = patience * LONGER ** len(PAUSES_S), 0
    while True:
        try:
            return await read(patience)
        except (TryAgain, OSError) as error:
            failed += 1
            if failed == tries:
                raise
            log.warning("reading failed, trying again: %s", error)
            await clock.sleep(PAUSES_S[min(failed, len(PAUSES_S)) - 1])
            patience = min(patience * LONGER, longest)
