"""VirtualApp: an app for tests, on a virtual clock and by default on a new memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.app import App, AppBackend
from outlast.decorators import Workflow
from outlast.model.run import Run
from outlast.ports.codec import Codec
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
        self.clock = clock
        self.stuck_after = STUCK_AFTER_S
        super().__init__(store, **options)

    def _new_backend(self, store: Store, codec: Codec) -> AppBackend:
        return _VirtualBackend(self, store, codec)


class _VirtualBackend(AppBackend):
    """Raises `Stuck` instead of waiting for a run that cannot advance."""

    def __init__(self, app: VirtualApp, store: Store, codec: Codec) -> None:
        super().__init__(store, codec, app.check_loop)
        self._app = app

    async def ended(self, run_id: str, timeout: float | None) -> Run:
        waiting = asyncio.ensure_future(super().ended(run_id, timeout))
        patience = self._app.stuck_after
        try:
            while patience:
                await asyncio.wait((waiting,), timeout=1)
                if waiting.done():
                    return waiting.result()
                at_rest = self._app.clock.is_at_rest
                patience = patience - 1 if at_rest else self._app.stuck_after
        finally:
            waiting.cancel()
        run = await self.record(run_id)
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
