"""The memory store, against the whole contract. It is the specification: every case has to pass."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.clock import ManualClock
from outlast.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    """All parts of the kit."""

    thread_safe = True

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty memory store on a clock that stands still."""
        async with MemoryStore(clock=clock) as store:
            yield store
