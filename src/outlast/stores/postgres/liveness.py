"""Owners: takeover need not wait for the lease where the database can tell that a process died.

::

    claim as "w-1" ──▶ a shared advisory lock "w-1", on the session that listens and on those that
                       claim and renew, and a row
    kill -9 ──▶ all sessions end, the locks with them
    others  ──▶ look when they begin, and every two seconds: a row without a lock is missing; if it
                still is when they look again, half a second later, its owner is gone: its leases
                are ended, and whoever waits gets a wake-up

One session that is cut off says nothing: the others hold the lock. All can be lost while their process
lives: the network was cut, or the server was restarted. So there is a second look, a session that is lost is made again at once, and whoever has just come back
judges nobody for a while. If all that is not enough nothing is lost: the owner is fenced, as after a
pause past its lease. Behind a pooler there is no session to hold a lock, and the lease decides.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import asyncpg

from outlast.errors import OutlastError
from outlast.stores.postgres.rows import Row
from outlast.stores.postgres.schema import Queries

_logger = logging.getLogger("outlast.postgres")

LOOK = 2.0
"""Seconds between two looks at the others: less than a query a second."""

GRACE = 0.4
"""Longer than a session that was cut off needs to come back."""

SETTLE = 10.0
"""Seconds after a session was lost, or the server was started, in which nobody is judged: the others come
back, too."""
SECONDS, LAST_SECONDS = 5.0, 2.0
AGAIN = 0.5
MOST = 64
"""Owners of one process: each takes a place in the server's table of locks. More are not watched."""

Judge = Callable[[timedelta, timedelta], Awaitable[list[Row]]]


async def end(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks, and wait until they have ended. One that gives a connection back waits for the
    server once more, though it was cancelled: then it is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)


class Owners:
    """The owners of this process, and a look at those of others, between `start` and `stop`."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._session: Any = None
        self._lock = asyncio.Lock()
        self._mine: dict[str, None] = {}
        self._held: set[str] = set()
        self._watching: asyncio.Task[None] | None = None
        self._judges_from = 0.0
        self._has_come = False
        self._attached = asyncio.Event()

    def start(self, judge: Judge, ring: Callable[[], None]) -> None:
        """Begin to look at others: `judge` ends the leases of those that are gone."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(judge, ring), name="outlast watches")

    async def stop(self) -> None:
        """End it, in good order: who closes is not dead. Stopping twice is fine."""
        if self._watching is not None:
            await end(self._watching)
        if self._session is not None and self._held:
            await self._tell("drop_owners", list(self._held), timeout=LAST_SECONDS)
        self._watching, self._has_come, self._judges_from = None, False, 0.0
        self._mine.clear()
        self.detach()

    async def hold(self, owner: str) -> None:
        """From now on the death of this process is seen as the death of `owner`."""
        if owner in self._held or self._watching is None:
            return
        if owner not in self._mine:
            if len(self._mine) >= MOST:
                return
            self._mine[owner] = None
        if self._session is not None and await self._tell("hold_owner", owner):
            self._held.add(owner)

    async def attach(self, session: Any) -> None:
        """There is a session: hold all owners on it, again if there was one before."""
        if self._has_come:
            self._judges_from = time.monotonic() + SETTLE
        self._has_come = True
        self._session = session
        for owner in list(self._mine):
            await self.hold(owner)
        self._attached.set()

    def detach(self) -> None:
        """The session has ended."""
        self._session = None
        self._held.clear()

    async def _tell(self, name: str, argument: object, *, timeout: float = SECONDS) -> bool:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with self._lock:
                if self._session is not None:  # it may have ended while others were told
                    await self._session.fetch(self._queries[name], argument, timeout=timeout)
                    return True
        return False  # the lease decides

    async def _watch(self, judge: Judge, ring: Callable[[], None]) -> None:
        await self._attached.wait()
        pause = 0.0  # who has just begun most often takes the place of one that has died
        while True:
            await asyncio.sleep(pause * (0.9 + 0.2 * random.random()))
            pause = LOOK
            if self._session is None or time.monotonic() < self._judges_from:
                continue
            try:
                found = await judge(timedelta(seconds=GRACE), timedelta(seconds=SETTLE))
            except OutlastError as error:
                _logger.debug("nobody could look whether others live: %s", error)
                continue
            for name, gone in found:
                if gone:
                    _logger.info("%s has died: its runs can be taken over", name)
                    ring()
                else:
                    pause = GRACE * 1.15
