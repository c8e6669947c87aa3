"""An app for a test: fresh, in memory, on a clock that leaps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from outlast.api import Workflow
from outlast.app import App, resolve
from outlast.ports.store import Store
from outlast.testing.virtual import VirtualClock


class VirtualApp(App):
    """An app whose clock leaps: `clock` is the one."""

    def __init__(self, store: Store, clock: VirtualClock, **options: Any) -> None:
        super().__init__(store, **options)
        self.clock = clock


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
