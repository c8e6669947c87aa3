"""Waiting for what a store comes to hold, without polling: a test looks again after each write."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.model import Run
from outlast.ports.store import Store

PATIENCE = 20
WRITES = ("commit", "send", "heartbeat", "release", "claim_runs")


class Watch:
    """Hears of each write of one store object, whichever app in this process makes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written = asyncio.Event()
        for name in WRITES:
            setattr(store, name, self._announced(getattr(store, name)))

    def _announced(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def announced(*args: Any, **options: Any) -> Any:
            try:
                return await write(*args, **options)
            finally:
                self._written.set()

        return announced

    async def until(self, run_id: str, holds: Callable[[Run], bool]) -> Run:
        """The run, as soon as it is so."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._written.clear()
                if holds(run := await self._store.get(run_id)):
                    return run
                await self._written.wait()

    async def listed(self, many: int = 1) -> None:
        """Return when so many workers are known."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._written.clear()
                if len(await self._store.workers()) >= many:
                    return
                await self._written.wait()
