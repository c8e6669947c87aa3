"""An app for a test: fresh, in memory, on a clock that leaps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.app import App
from outlast.decorators import Workflow
from outlast.ports.store import Store
from outlast.testing.virtual_clock import VirtualClock
from outlast.urls import resolve

STUCK_AFTER = 5
"""Seconds of real time: somebody may still be about to do something that we do not know of."""


class Stuck(AssertionError):
    """Nothing will ever happen to the run whose result is awaited."""


class VirtualApp(App):
    """An app whose clock leaps: `clock` is the one."""

    def __init__(self, store: Store, clock: VirtualClock, **options: Any) -> None:
        super().__init__(store, **options)
        self.clock = clock
        self.stuck_after = STUCK_AFTER

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """Wait for a run's result; `Stuck` if it waits for what does not come."""
        waiting = asyncio.ensure_future(super().result(run_id, timeout=timeout))
        patience = self.stuck_after
        try:
            while patience:
                await asyncio.wait((waiting,), timeout=1)
                if waiting.done():
                    return waiting.result()
                patience = patience - 1 if self.clock.is_at_rest else self.stuck_after
        finally:
            waiting.cancel()
        run = await self.get(run_id)
        raise Stuck(
            f"run {run_id!r} is {run.status} ({run.wait_kind}) and will be for ever: no timer is "
            "set and no step runs. Send what it waits for, or give result() a timeout"
        )


@asynccontextmanager
async def app(
    *workflows: Workflow[..., Any],
    store: str | Store = "memory:",
    clock: VirtualClock | None = None,
    **options: Any,
) -> AsyncIterator[VirtualApp]:
    """An app with these workflows, open for the time of an ``async with``.

    On a fresh memory store, unless `store` is a URL or a store of yours: made by you, with the
    same `clock`, and left open. `options` are those of `outlast.App`.
    """
    virtual = clock or VirtualClock()
    opened = resolve(store, clock=virtual) if isinstance(store, str) else store
    if isinstance(store, str):
        await opened.open()
    try:
        async with VirtualApp(opened, virtual, workflows=workflows, **options) as made:
            yield made
    finally:
        if isinstance(store, str):
            await opened.close()
