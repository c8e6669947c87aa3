"""VirtualApp: an app for tests, on a virtual clock and by default on a new memory store."""

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

STUCK_AFTER_S = 5
"""Seconds of real time: a thread or a server may still be about to act."""


class Stuck(AssertionError):
    """The awaited run cannot advance: no timer is set and no step is in flight."""


class VirtualApp(App):
    """An app on a virtual clock, `clock`."""

    def __init__(self, store: Store, clock: VirtualClock, **options: Any) -> None:
        super().__init__(store, **options)
        self.clock = clock
        self.stuck_after = STUCK_AFTER_S

    async def result(self, run_id: str, *, timeout: float | None = None) -> Any:
        """Wait for a run's result; raise `Stuck` if the run cannot advance."""
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
            f"run {run_id!r} is {run.status} ({run.wait_kind}) and cannot advance: no timer is "
            "set and no step is in flight. Send the message that it waits for, or pass a timeout to result()"
        )


@asynccontextmanager
async def app(
    *workflows: Workflow[..., Any],
    store: str | Store = "memory:",
    clock: VirtualClock | None = None,
    **options: Any,
) -> AsyncIterator[VirtualApp]:
    """An app with these workflows, open within an ``async with``.

    It uses a new memory store, unless `store` is a URL or a store. A store that you pass must use the
    same `clock`, and stays open. `options` are those of `outlast.App`.
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
