"""Wake-ups between processes by LISTEN and NOTIFY.

::

    commit ── wake ──▶ waiters of this process, at once
                └────▶ coalesced: at most one NOTIFY in 50 ms, by a task ──▶ other processes
    NOTIFY of another process ──▶ the listening connection ──▶ waiters of this process

NOTIFY takes a lock on the whole database while it commits, so it is not part of a commit: one NOTIFY serves many
commits, and does not wait for the disk. A wake-up may be lost; waiters also poll. `stop` sends a pending wake-up, so
that a process that only starts a run and exits wakes the workers. Behind a pooler LISTEN is not possible, and
processes poll.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any

import asyncpg

from outlast.model.commit_rules import WakeupKind
from outlast.model.ids import new_id
from outlast.ports.notifier import LocalNotifier, from_message, to_message
from outlast.stores.postgres.liveness import CLOSE_TIMEOUT_S, Liveness, cancel_all

_logger = logging.getLogger("outlast.postgres")

Notify = Callable[[str], Awaitable[object]]

NOTIFY_INTERVAL_S = 0.05
"""Between two NOTIFYs: wake-ups in between are coalesced."""

MIN_RETRY_S, MAX_RETRY_S = 0.05, 5.0
"""The first retry is fast: a process that is not connected soon counts as crashed (liveness.py)."""


class PostgresNotifier(LocalNotifier):
    """Wakes this process and, between `start` and `stop`, other processes on the same tables."""

    def __init__(self, schema: str, prefix: str) -> None:
        super().__init__()
        name = hashlib.sha256(f"{schema}.{prefix}".encode()).hexdigest()[:24]
        self.channel = f"outlast_{name}"
        self.name = new_id()
        self.is_listening = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted = asyncio.Event()
        self._kind = WakeupKind(0)
        self._runs: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._notify: Notify | None = None

    def wake(self, kind: WakeupKind = WakeupKind.ANY, *, runs: Collection[str] = ()) -> None:
        super().wake(kind, runs=runs)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # it may be closed by now
                loop.call_soon_threadsafe(self._want, kind, runs)

    def _want(self, kind: WakeupKind, runs: Collection[str]) -> None:
        self._kind |= kind
        self._runs.update(runs)
        self._wanted.set()

    def start(self, url: str, notify: Notify, liveness: Liveness) -> None:
        """Listen at `url`, and send wake-ups by `notify`. The listening session also holds the locks of
        `liveness`."""
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self._notify = notify
            self._tasks = [
                asyncio.create_task(self._listen(url, liveness), name="outlast-listen"),
                asyncio.create_task(self._pass_on(notify), name="outlast-notify"),
            ]

    def pass_on(self, notify: Notify) -> None:
        """Send wake-ups by `notify` without listening: there is no connection to listen on."""
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self._notify = notify
            self._tasks = [asyncio.create_task(self._pass_on(notify), name="outlast-notify")]

    def abandon(self) -> None:
        super().abandon()
        self._tasks, self._loop, self._notify, self.is_listening = [], None, None, False

    async def stop(self) -> None:
        """Stop both tasks, and send a pending wake-up. Idempotent."""
        tasks, self._tasks, self._loop = self._tasks, [], None
        notify, self._notify = self._notify, None
        await cancel_all(*tasks)
        if notify is not None and self._kind:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._send(notify)

    async def _pass_on(self, notify: Notify) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._send(notify)
            await asyncio.sleep(NOTIFY_INTERVAL_S)

    async def _send(self, notify: Notify) -> None:
        """Send the pending wake-up. After a cancellation it stays pending: a duplicate is harmless."""
        kind, runs = self._kind, self._runs
        self._kind, self._runs = WakeupKind(0), set()
        try:
            await notify(to_message(self.name, kind, runs))
        except Exception as error:  # noqa: BLE001 - `wake` never fails, and the next one sends it again
            # Nothing is lost: other processes also poll.
            _logger.debug("a wake-up was not passed on: %s", error)
        except asyncio.CancelledError:
            self._want(kind, runs)
            raise

    async def _listen(self, url: str, liveness: Liveness) -> None:
        retry = MIN_RETRY_S
        while True:
            connection: Any = None
            try:
                connection = await asyncpg.connect(url, timeout=30, statement_cache_size=0)
                ended = asyncio.Event()
                connection.add_termination_listener(lambda _, ended=ended: ended.set())
                await liveness.attach(connection)
                await connection.add_listener(self.channel, self._heard)
                self.is_listening, retry = True, MIN_RETRY_S
                self.wake_local()  # for wake-ups that were missed
                self._call_listeners(None)
                await ended.wait()
                _logger.info("the listening connection ended: reconnecting")
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _logger.debug("cannot listen: %s", error)
            finally:
                self.is_listening = False
                liveness.detach()
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(retry * (0.5 + random.random()))
            retry = min(2 * retry, MAX_RETRY_S)

    def _heard(self, _: Any, pid: int, channel: str, message: str) -> None:
        sender, kind, runs = from_message(message)
        if sender != self.name:
            self.wake_local(kind, runs=runs)
