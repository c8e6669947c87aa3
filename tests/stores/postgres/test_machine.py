"""PostgreSQL against the memory store, in calls that Hypothesis invents, and under faults."""

from __future__ import annotations

import pytest

from outlast.ports import Store
from outlast.stores.postgres import PostgresStore
from outlast.testing.virtual_clock import ManualClock
from outlast.testkit.checker import RecordingStore, check
from outlast.testkit.dump import Dump
from outlast.testkit.faults import (
    Fault,
    FaultyStore,
    Never,
    Nth,
    Plan,
    Random,
    let_others_go_first,
    sweep,
)
from outlast.testkit.stateful import store_machine
from outlast.testkit.value_diff import Pairing, differences
from tests.stores.postgres.places import FreshStore, direct
from tests.unit.testkit.faults.scenario import state, tell
from tests.unit.testkit.faults.storm import RATES, Storm

pytestmark = pytest.mark.server

EXAMPLES = 15
EVERY = 4
"""Of the calls of the story, every so manieth is disturbed: all of them are in `./dev prove`."""


def fresh(clock: ManualClock) -> Store:
    """An empty store on a clock of the test."""
    return FreshStore(clock=clock)


@pytest.mark.timeout(600)
@pytest.mark.proves("I1", "I5", "I6", "I11", "I12", "I13", "I16", "I18", "I25", "K-08", "C-28")
def test_against_memory() -> None:
    """Whatever is asked of both, PostgreSQL answers and holds what the memory store does."""
    store_machine(fresh, max_examples=EXAMPLES)("runTest").debug()


async def ending(plan: Plan) -> tuple[FaultyStore, Dump]:
    """The store after a telling with these faults, and what it holds."""
    clock = ManualClock()

    async def pause() -> None:
        clock.advance(7)

    inner = fresh(clock)
    async with FaultyStore(inner, plan, pause=pause) as store:
        await tell(store, clock)
        return store, await state(inner)


@pytest.mark.proves("I3", "I12", "C-03", "C-20", "M-10", "M-23")
@pytest.mark.parametrize("fault", Fault)
async def test_calls_with_every_fault(fault: Fault) -> None:
    """A client that repeats and settles by `Commit.id` ends where the undisturbed one does."""
    calm, expected = await ending(Never())
    assert len(calm.sites) > 30
    for number, kind in sweep(len(calm.sites)):
        if kind is fault and number % EVERY == list(Fault).index(fault) % EVERY:
            store, actual = await ending(Nth(number, kind))
            assert [site.number for site, _ in store.faults] == [number]
            assert list(differences(expected, actual, Pairing(), times=False)) == [], store.faults


class _Storm(Storm):
    """Without doubled calls, which are tried one by one above: with true concurrency others come in
    between, and the second answer may deny what the first call did."""

    def _client(self, name: str) -> RecordingStore:
        rates = {**RATES, Fault.DUPLICATED: 0.0}
        plan = Random(self.random.getrandbits(32), rates)
        return RecordingStore(
            FaultyStore(self.store, plan, pause=let_others_go_first), self.log, name
        )


@pytest.mark.proves("I1", "I2", "I3", "I4", "I5", "I6", "I7", "I11", "I12", "I13", "I16", "I18")
@pytest.mark.parametrize("seed", range(6))
async def test_a_storm_breaks_no_promise(seed: int, schema: str) -> None:
    """Racing starters, zombies, lost answers: the checker finds nothing."""
    clock = ManualClock()
    # Tables of its own: what a storm has cut off may still be on its way to the server when the
    # next one begins.
    async with PostgresStore(direct(), schema=schema, notify=False, clock=clock) as store:
        evidence = await _Storm(store, clock, seed).evidence()
    assert [str(one) for one in check(evidence)] == []
