"""Redis against the memory store, in calls that Hypothesis invents, and under faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outlast.ports import Store
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.checker import check
from outlast.testkit.dump import Dump
from outlast.testkit.faults import Fault, FaultyStore, Never, Nth, Plan, sweep
from outlast.testkit.stateful import store_machine
from outlast.testkit.value_diff import Pairing, differences
from tests.stores.redis.servers import clustered, single
from tests.unit.testkit.faults.scenario import state, tell
from tests.unit.testkit.faults.storm import Storm

pytestmark = pytest.mark.server

# Few, because every step compares all that both stores hold: `./dev prove` is for more.
EXAMPLES = {"single": 6, "cluster": 2}
EVERY = 4
"""Of the calls of the story, every so manieth is disturbed: all of them are for `./dev prove`."""
Make = Callable[[ManualClock], Store]
STORES: dict[str, Make] = {
    "single": lambda clock: single(clock=clock),
    "cluster": lambda clock: clustered(clock=clock),
}


@pytest.fixture(params=STORES)
def make(request: pytest.FixtureRequest) -> Make:
    """How to make a new store."""
    return STORES[request.param]


@pytest.mark.timeout(600)
@pytest.mark.proves("I1", "I5", "I6", "I11", "I12", "I13", "I16", "I18", "I25", "K-08", "C-28")
@pytest.mark.parametrize("name", STORES)
def test_against_memory(name: str) -> None:
    """Whatever is asked of both, Redis answers and holds what the memory store does. On a cluster
    the same sequences every time: tasks of two partitions that are ready in the same microsecond
    have no order there, which a longer search finds."""
    options: dict[str, Any] = {"derandomize": True, "database": None} if name == "cluster" else {}
    store_machine(STORES[name], max_examples=EXAMPLES[name], **options)("runTest").debug()


async def ending(plan: Plan, make: Make) -> tuple[FaultyStore, Dump]:
    """The store after a telling with these faults, and what it holds."""
    clock = ManualClock()

    async def pause() -> None:
        clock.advance(7)

    inner = make(clock)
    async with FaultyStore(inner, plan, pause=pause) as store:
        await tell(store, clock)
        return store, await state(inner)


@pytest.mark.proves("I3", "I12", "C-03", "C-20", "M-10", "M-23")
@pytest.mark.parametrize("fault", Fault)
async def test_calls_with_every_fault(fault: Fault, make: Make) -> None:
    """A client that repeats and settles by `Commit.id` ends where the undisturbed one does."""
    calm, expected = await ending(Never(), make)
    assert len(calm.sites) > 30
    for number, kind in sweep(len(calm.sites)):
        if kind is fault and number % EVERY == list(Fault).index(fault) % EVERY:
            store, actual = await ending(Nth(number, kind), make)
            assert [site.number for site, _ in store.faults] == [number]
            assert list(differences(expected, actual, Pairing(), times=False)) == [], store.faults


@pytest.mark.proves("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I11", "I12", "I13", "I16", "I18")
@pytest.mark.parametrize("seed", range(4))
async def test_a_storm_breaks_no_promise(seed: int, make: Make) -> None:
    """Racing starters, zombies, lost and doubled answers: the checker finds nothing."""
    clock = ManualClock()
    async with make(clock) as store:
        evidence = await Storm(store, clock, seed).evidence()
    assert [str(one) for one in check(evidence)] == []
