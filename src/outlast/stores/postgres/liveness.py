"""Liveness of owners: a takeover need not wait for lease expiry when the database shows that a process died.

::

    claim as "w-1" ──▶ a shared advisory lock "w-1" on the session that listens and on those that claim and
                       renew, and a row in `owners`
    kill -9        ──▶ all sessions end, and the locks with them
    other process  ──▶ checks on start and every two seconds: a row without a lock is missing; if it is still
                       missing half a second later, the owner is gone: its leases are ended, with a wake-up

One session that is cut off proves nothing: the others hold the lock. All sessions can be lost while the
process lives, by a network failure or a server restart. Hence the second check; a lost session reconnects
at once, and a process that has just reconnected judges no owner for a while. A wrong verdict is safe: the
owner is fenced, as after a lease expiry. Behind a pooler there is no session to hold a lock, and only the
lease counts.
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

CHECK_INTERVAL_S = 2.0
"""Between two checks of all owners."""

GRACE_S = 0.4
"""Longer than a session that was cut off needs to reconnect."""

SETTLE_S = 10.0
"""After a lost session or a server start no owner is judged for so long: other processes reconnect too."""
TIMEOUT_S, CLOSE_TIMEOUT_S = 5.0, 2.0
CANCEL_INTERVAL_S = 0.5
MAX_OWNERS = 64
"""Owners of one process: each needs an entry in the server's lock table. Further ones have only their lease."""

EndLeases = Callable[[timedelta, timedelta], Awaitable[list[Row]]]


async def cancel_all(*tasks: asyncio.Task[None]) -> None:
    """Cancel tasks and wait until they have ended. A task that returns a connection waits for the server even
    after a cancellation: it is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_INTERVAL_S)


class Liveness:
    """Registers the owners of this process, and checks those of other processes, between `start` and `stop`."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._session: Any = None
        self._lock = asyncio.Lock()
        self._own: dict[str, None] = {}
        self._registered: set[str] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._judges_from = 0.0
        self._had_session = False
        self._attached = asyncio.Event()

    def start(self, end_leases: EndLeases, wake: Callable[[], None]) -> None:
        """Start checking: `end_leases` ends the leases of owners that are gone."""
        if self._watcher is None:
            self._watcher = asyncio.create_task(
                self._watch(end_leases, wake), name="outlast-liveness"
            )

    async def stop(self) -> None:
        """Stop and deregister: a process that closes has not crashed. Idempotent."""
        if self._watcher is not None:
            await cancel_all(self._watcher)
        if self._session is not None and self._registered:
            await self._call("deregister_owners", list(self._registered), timeout=CLOSE_TIMEOUT_S)
        self._watcher, self._had_session, self._judges_from = None, False, 0.0
        self._own.clear()
        self.detach()

    async def register(self, owner: str) -> None:
        """Other processes detect a crash of this one as that of `owner` from now on."""
        if owner in self._registered or self._watcher is None:
            return
        if owner not in self._own:
            if len(self._own) >= MAX_OWNERS:
                return
            self._own[owner] = None
        if self._session is not None and await self._call("register_owner", owner):
            self._registered.add(owner)

    async def attach(self, session: Any) -> None:
        """Register all owners on a new session."""
        if self._had_session:
            self._judges_from = time.monotonic() + SETTLE_S
        self._had_session = True
        self._session = session
        for owner in list(self._own):
            await self.register(owner)
        self._attached.set()

    def detach(self) -> None:
        """The session has ended."""
        self._session = None
        self._registered.clear()

    async def _call(self, name: str, argument: object, *, timeout: float = TIMEOUT_S) -> bool:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            async with self._lock:
                if self._session is not None:  # it may have ended while this call waited
                    await self._session.fetch(self._queries[name], argument, timeout=timeout)
                    return True
        return False  # only the lease counts

    async def _watch(self, end_leases: EndLeases, wake: Callable[[], None]) -> None:
        await self._attached.wait()
        delay = 0.0  # a new process often replaces one that has crashed
        while True:
            await asyncio.sleep(delay * (0.9 + 0.2 * random.random()))
            delay = CHECK_INTERVAL_S
            if self._session is None or time.monotonic() < self._judges_from:
                continue
            try:
                found = await end_leases(timedelta(seconds=GRACE_S), timedelta(seconds=SETTLE_S))
            except OutlastError as error:
                _logger.debug("liveness check failed: %s", error)
                continue
            for name, gone in found:
                if gone:
                    _logger.info("owner %s has died: its runs can be taken over", name)
                    wake()
                else:
                    delay = GRACE_S * 1.15
