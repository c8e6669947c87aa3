"""Heartbeat: a process records that it is alive, so that people can see which workers a store has.

No claim depends on it: claims have leases. A run that one worker's code rejects is left to listed workers with other
code. A worker that stops removes itself from the list; one that crashed is shown as dead when its record expires.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

import msgspec

from outlast.errors import Closed, OutlastError
from outlast.model.claim import Worker
from outlast.ports.clock import LeapingClock
from outlast.ports.port import Capability
from outlast.ports.store import Store

INTERVAL_S = 15.0
EXPIRES_AFTER_S = 3 * INTERVAL_S
"""How long after its last heartbeat a worker counts as dead."""
CALL_TIMEOUT_S = 5.0
LAST_TIMEOUT_S = 2.0
"""How long a worker that stops tries to remove itself from the list."""

log = logging.getLogger("outlast.worker")


class Heartbeat:
    """Writes the record of this process between `open` and `close`. `on_listed` is called after the first time."""

    def __init__(
        self,
        store: Store,
        record: Callable[[], Worker],
        on_listed: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._record = record
        self._on_listed = on_listed
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start, if the store lists workers."""
        # Not with virtual time: every write would be a step of the simulation.
        virtual = isinstance(self._store.clock, LeapingClock)
        if self._task is None and Capability.WORKERS in self._store.capabilities:
            if not virtual:
                self._task = asyncio.create_task(self._run(), name="outlast: heartbeat")

    async def close(self) -> None:
        """Stop, and remove this process from the list. Closing twice is fine."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        try:
            await self._store.leave(self._record().owner, timeout=LAST_TIMEOUT_S)
        except OutlastError as error:
            log.debug("this worker could not be removed from the list: %s", error)

    async def _run(self) -> None:
        first = True
        while True:
            worker = msgspec.structs.replace(
                self._record(), host=socket.gethostname(), pid=os.getpid(), version=_version()
            )
            try:
                await self._store.heartbeat(worker, EXPIRES_AFTER_S, timeout=CALL_TIMEOUT_S)
                if first:
                    first = False
                    self._on_listed()
            except Closed:
                return
            except OutlastError as error:
                log.debug("the heartbeat could not be written: %s", error)
            await self._store.clock.sleep(INTERVAL_S)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to load, and needed once

    try:
        return version("outlast")
    except PackageNotFoundError:
        return ""
