"""Reading by who holds a lease.

A lease is renewed on a connection of its own. So an answer that never comes, because the network has
lost the other end of a connection, would keep a run for ever: held, renewed, and going nowhere.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlast.errors import TryAgain
from outlast.ports.clock import Clock

PAUSES = (0.1, 0.5, 2.5)
LONGER = 4
"""How many times longer each try may take: a long history is not read in the time of a call."""

log = logging.getLogger("outlast.engine")
T = TypeVar("T")


async def patiently(clock: Clock, read: Callable[[float], Awaitable[T]], patience: float) -> T:
    """Read, within a time that `read` is given (`patience` seconds at first), and read again if the
    store hiccups: giving the run up would cut off its steps."""
    for pause in PAUSES:
        try:
            return await read(patience)
        except TryAgain as error:
            log.warning("reading failed, trying again: %s", error)
            await clock.sleep(pause)
            patience *= LONGER
    return await read(patience)
