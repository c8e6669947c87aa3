"""Heartbeat: a process says that it lives, so that people can see who works on a store.

No claim depends on it: those have leases of their own. What a worker's code cannot go on with is left to
workers that are listed with other code. A worker that stops takes itself off the
list; one that is killed falls silent, and is shown as dead.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

import msgspec

from outlast.errors import Closed, OutlastError
from outlast.model.worker import Worker
from outlast.ports.capabilities import Capability
from outlast.ports.clock import LeapingClock
from outlast.ports.store import Store

PERIOD = 15.0
PATIENCE = 3 * PERIOD
"""Seconds between two words, and after the last one until it counts as dead."""
CALL_SECONDS = 5.0
LAST_SECONDS = 2.0
"""How long one who stops tries to say goodbye."""

log = logging.getLogger("outlast.worker")


class Heartbeat:
    """The word of this process, between `open` and `close`."""

    def __init__(
        self, store: Store, word: Callable[[], Worker], listed: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._word = word
        self._listed = listed
        self._speaking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to say so, if the store lists workers."""
        # Where time is virtual nobody looks, and every write would be a step of the simulation.
        virtual = isinstance(self._store.clock, LeapingClock)
        if self._speaking is None and Capability.WORKERS in self._store.capabilities:
            if not virtual:
                self._speaking = asyncio.create_task(self._speak(), name="outlast is present")

    async def close(self) -> None:
        """Say goodbye. Closing twice is fine."""
        if self._speaking is None:
            return
        self._speaking.cancel()
        await asyncio.gather(self._speaking, return_exceptions=True)
        self._speaking = None
        try:
            await self._store.leave(self._word().owner, timeout=LAST_SECONDS)
        except OutlastError as error:
            log.debug("nobody could be told that this process stops: %s", error)

    async def _speak(self) -> None:
        first = True
        while True:
            word = msgspec.structs.replace(
                self._word(), host=socket.gethostname(), pid=os.getpid(), version=_version()
            )
            try:
                await self._store.heartbeat(word, PATIENCE, timeout=CALL_SECONDS)
                if first:
                    first = False
                    self._listed()
            except Closed:
                return
            except OutlastError as error:
                log.debug("nobody could be told that this process lives: %s", error)
            await self._store.clock.sleep(PERIOD)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and needed once

    try:
        return version("outlast")
    except PackageNotFoundError:
        return ""
