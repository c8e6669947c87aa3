"""The memory store, against the whole contract. It is the specification: every case has to pass."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.conformance import StoreConformance
from outlast.testkit.conformance.scenario import events


class TestMemoryStore(StoreConformance):
    """All parts of the kit."""

    thread_safe = True

    @pytest.fixture
    async def store(self, clock: ManualClock) -> AsyncIterator[Store]:
        """An empty memory store on a clock that stands still."""
        async with MemoryStore(clock=clock) as store:
            yield store


@pytest.mark.proves("M-17", "S-21", "C-01")
async def test_memory_holds_the_log_and_what_follows_from_it_while_it_lives() -> None:
    """The events and the record derived from them are there; a new store begins empty, and says
    that nothing survives."""
    async with MemoryStore() as store:
        await store.append("r", events("r", 2))
        assert (await store.get("r")).sequence == len(await store.history("r")) == 2
        assert not store.durable
    async with MemoryStore() as another:
        assert await another.find_one("r") is None


@pytest.mark.proves("M-21", "C-26")
async def test_a_store_is_configured_by_its_constructor(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment and no global: two stores in one process share nothing, not even time."""
    for name in os.environ:
        monkeypatch.delenv(name)
    clock = ManualClock()
    async with MemoryStore(clock=clock) as one, MemoryStore() as other:
        await one.append("r", events("r", 1))
        assert not await other.exists("r")
        clock.advance(10)
        assert await one.now() == clock.now()
        assert await other.now() != clock.now()
