"""Fixtures for pytest, loaded with the package; ``-p no:outlast`` disables them.

`virtual_clock` is a `VirtualClock`; `outlast_app` makes apps in memory on it::

    async def test_order(outlast_app):
        async with outlast_app(checkout) as app:
            run = await app.start(checkout(order))
            assert await run.result() == receipt
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from outlast.decorators import Workflow
    from outlast.ports.store import Store
    from outlast.testing.virtual_app import VirtualApp
    from outlast.testing.virtual_clock import VirtualClock


class AppFactory(Protocol):
    """Makes apps: see `outlast.testing.app`."""

    def __call__(
        self, *workflows: Workflow[..., Any], store: str | Store = "memory:", **options: Any
    ) -> AbstractAsyncContextManager[VirtualApp]:
        """An app with these workflows, for the time of an ``async with``."""
        ...


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that jumps to the next sleeper when nothing is in flight."""
    # Imported late: the plugin is loaded in every pytest run on a machine that has outlast.
    from outlast.testing.virtual_clock import VirtualClock

    return VirtualClock()


@pytest.fixture
def outlast_app(virtual_clock: VirtualClock) -> AppFactory:
    """Make apps on fresh memory stores, or on the `store` you name, with `virtual_clock`."""
    from outlast.testing.virtual_app import app

    def make(
        *workflows: Workflow[..., Any], store: str | Store = "memory:", **options: Any
    ) -> AbstractAsyncContextManager[VirtualApp]:
        return app(*workflows, store=store, clock=virtual_clock, **options)

    return make
