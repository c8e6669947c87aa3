"""Every call of a story, with every fault: it always ends as if nothing had gone wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from outlast.model import Commit, Run
from outlast.ports import Store
from outlast.ports.store_methods import StoreMethods
from outlast.stores.memory import MemoryStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.dump import Dump
from outlast.testkit.faults import Fault, FaultyStore, Never, Nth, Plan, Random, persist, sweep
from outlast.testkit.value_diff import Pairing, differences
from outlast.testkit.wrapped_store import WrappedStore
from tests.unit.testkit.faults.scenario import state, tell
from tests.unit.testkit.stateful.stores import memory_store, sqlite_store

Make = Callable[[ManualClock], AbstractContextManager[Store]]
STORES = [memory_store, sqlite_store]
RATES = dict.fromkeys(Fault, 0.05)


async def ending(plan: Plan, make: Make = memory_store) -> tuple[FaultyStore, Dump]:
    """The store after a telling with these faults, and what it holds."""
    clock = ManualClock()

    async def pause() -> None:
        clock.advance(7)

    with make(clock) as inner:
        async with FaultyStore(inner, plan, pause=pause) as store:
            await tell(store, clock)
            return store, await state(inner)


def unlike(expected: Dump, actual: Dump) -> list[str]:
    """How two endings differ, apart from times and the counter of tokens."""
    return list(differences(expected, actual, Pairing(), times=False))


@pytest.mark.proves("I3", "I12", "C-03", "C-20", "M-10", "M-23")
@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize("fault", Fault)
async def test_every_call_with_every_fault(fault: Fault, make: Make) -> None:
    """A client that repeats and settles by `Commit.id` ends where the undisturbed one does."""
    calm, expected = await ending(Never())
    assert len(calm.sites) > 30
    for number, kind in sweep(len(calm.sites)):
        if kind is fault:
            store, actual = await ending(Nth(number, kind), make)
            assert [site.number for site, _ in store.faults] == [number]
            assert unlike(expected, actual) == [], store.faults


@pytest.mark.proves("I3", "I12", "C-03", "C-20")
@pytest.mark.parametrize("seed", range(100))
async def test_many_faults_at_once(seed: int) -> None:
    """The same with a third of all calls going wrong, one after the other."""
    _, expected = await ending(Never())
    store, actual = await ending(Random(seed, RATES))
    assert store.faults
    assert unlike(expected, actual) == [], store.faults


@pytest.mark.proves("I3")
async def test_the_story_uses_every_primitive_that_writes() -> None:
    """Otherwise the sweep would be a sweep of less than it says."""
    store, _ = await ending(Never())
    assert {site.name for site in store.sites} >= {
        "claim_runs",
        "claim_task",
        "commit",
        "delete",
        "drop_fact",
        "drop_snapshot",
        "expire",
        "put_fact",
        "release",
        "remember",
        "renew",
        "send",
    }


@pytest.mark.proves("I3")
def test_every_primitive_of_the_port_is_wrapped() -> None:
    """A primitive that is added to the port cannot slip past the injector."""
    own = {"open", "close", "commit_when_free", "histories"}  # made of other primitives
    primitives = {
        name
        for name, member in vars(StoreMethods).items()
        if inspect.iscoroutinefunction(member) and not name.startswith("_")
    }
    assert primitives - own == {name for name in vars(WrappedStore) if name in primitives} - own


@pytest.mark.proves("C-20")
@pytest.mark.parametrize("fault", Fault)
async def test_what_each_fault_does_to_a_commit(fault: Fault) -> None:
    """Whether it happened and whether the caller knows are two questions."""
    inner = MemoryStore()
    store = FaultyStore(inner, Nth(1, fault))
    commit = Commit(run_id="r", create=Run(id="r"))
    committed = await persist(store, commit)
    untouched = {
        Fault.REFUSED, Fault.LOST_REQUEST, Fault.CANCELLED_BEFORE, Fault.DELAYED, Fault.AWAY,
    }  # fmt: skip
    assert committed.again == (fault not in untouched)
    assert committed.revision == (await inner.get("r")).revision == 1
