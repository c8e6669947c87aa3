"""Leases: renewed in time, and given up when that cannot be confirmed."""

from __future__ import annotations

from typing import Any

import pytest

import outlast
from outlast.errors import TryAgain
from outlast.model import Claim
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes

ended: list[str] = []


class Deaf(MemoryStore):
    """A store that cannot be reached for renewals while `silent`."""

    silent = False
    asked = 0

    async def renew(self, claims: Any, ttl: float, **options: Any) -> list[Claim | None]:
        self.asked += 1
        if self.silent:
            raise TryAgain("the network is down")
        return await super().renew(claims, ttl, **options)


@outlast.step
async def long() -> str:
    try:
        await takes(100)
    finally:
        ended.append(f"{outlast.step_info().attempt} after {int(clock.monotonic() - began)}")
    return "done"


@outlast.workflow
async def waits() -> str:
    return await long()


clock: VirtualClock
began: float


@pytest.fixture
def store() -> Deaf:
    global clock, began
    clock = VirtualClock()
    began = clock.monotonic()
    ended.clear()
    return Deaf(clock=clock)


@pytest.mark.proves("I4")
async def test_a_lease_is_renewed_at_every_third(store: Deaf) -> None:
    """So it never ends while somebody works under it."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        assert await (await virtual.start(waits)).result() == "done"
    assert store.asked in (9, 10)  # the last one is due when the step ends
    assert ended == ["1 after 100"]


@pytest.mark.proves("I4")
async def test_who_cannot_renew_stops_when_the_lease_ends(store: Deaf) -> None:
    """By its own clock: another process may have the run now."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        run = await virtual.start(waits)
        store.silent = True
        await clock.sleep(35)
        assert len(ended) == 1, "the step goes on without a lease"
        assert 30 <= int(ended[0].split()[-1]) <= 33
        store.silent = False
        assert await run.result() == "done"


async def test_a_short_silence_costs_nothing(store: Deaf) -> None:
    """Renewing is tried again until the lease has really run out."""
    async with app(waits, store=store, clock=clock, lease=30) as virtual:
        run = await virtual.start(waits)
        store.silent = True
        await clock.sleep(25)
        store.silent = False
        assert await run.result() == "done"
    assert ended == ["1 after 100"]
