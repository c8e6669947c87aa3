"""A lease in doubt while a commit is on its way: what the code asks for then is begun when that is durable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import outlast
from outlast.model.event import EventType
from outlast.ports import Store
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, app
from outlast.testing import sleep as takes
from outlast.testkit.faults import FaultyStore, Outage

LEASE = 30.0
seen: list[list[str]] = []


def nothing() -> None:
    """Nothing happens."""


hit: Callable[[], None] = nothing
store: Store


@outlast.step
async def item(number: int) -> int:
    await takes(number)
    hit()
    return number


@outlast.step(at_most_once=True)
async def once() -> str:
    seen.append([event.type for event in await store.history("r") if event.step_name == "once"])
    return "done"


@outlast.workflow
async def maps_and_goes_on() -> str:
    await outlast.map(item, [1, 2])
    return await once()


@pytest.mark.proves("I10", "I4")
async def test_what_a_map_leads_to_is_counted_before_it_begins() -> None:
    """The commit of its first item waits for the store when its second one ends and the lease is in
    doubt: the map is over then, and the step after it begins when its intent is durable, not with that
    commit."""
    global hit, store
    seen.clear()
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    outage = Outage(clock)

    def away() -> None:
        if not outage.lasts:
            outage.begin(2 * LEASE)

    hit = away
    async with app(
        maps_and_goes_on, store=FaultyStore(store, outage), clock=clock, lease=LEASE
    ) as opened:
        run = await opened.start(maps_and_goes_on(), id="r")
        assert await run.result() == "done"
    assert seen == [[EventType.STEP_STARTED]]
