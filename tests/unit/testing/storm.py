"""The corpus in bad weather: each of its tiny workflows, as a simulated run."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from outlast.client import Client
from outlast.errors import WorkflowMisuse
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing import VirtualClock, sleep
from outlast.testing.crash_sweep import DEFAULT_RESIDENCY, ResidencyPolicy, residency_for
from outlast.testing.scenario_result import EffectLedger, Ending
from outlast.testkit.checker import RecordingStore
from outlast.testkit.fault_schedule import CALM, STORM, FaultRates
from outlast.testkit.simulation import OutsideWorld, SimulatedRun, SimulationResult, simulate
from tests.corpus import stage as staging
from tests.corpus.case import RUN, Case, Failed

MODULES = [
    "branches",
    "children",
    "compensation",
    "control",
    "maps",
    "nesting",
    "races",
    "replay",
    "steps",
    "structure",
    "waiting",
]

TOO_LONG = {"loops_for_long"}
"""A thousand commits: it takes as long as a hundred others, and shows what a short loop shows."""

RACES = {
    "a_signal_at_the_last_moment": "a process that stands still may be late for both",
    "the_signal_is_first": "a step that is cut off and a late signal may both lose to the timer",
    "the_step_is_first": "a step that is cut off may lose to the timer",
    "three_signals_and_three_timeouts": "a signal may come when its time is over",
    "a_timeout_around_signals": "a signal may come when the time is over",
    "is_cancelled_with_its_guest": "which of the two ends first is open",
    "is_quick_enough": "a lost lease takes longer than its timeout",
    "maps_nothing": "its result says how long it took",
    "three_are_enough": "more than three may be ready at once",
}
"""Cases whose outcome rightly depends on the weather: for these, promises are all we check."""


@cache
def cases() -> dict[str, Case]:
    """The corpus, by name."""
    found: dict[str, Case] = {}
    for module in MODULES:
        for case in importlib.import_module(f"tests.corpus.{module}").CASES:
            found[case.id] = case
    return found


def case_of(seed: int) -> str:
    """Each case in turn."""
    names = [name for name in cases() if name not in TOO_LONG]
    return names[seed % len(names)]


def residency_of(seed: int) -> ResidencyPolicy:
    """Each residency in turn, for each case."""
    return residency_for(seed // (len(cases()) - len(TOO_LONG)))


def storm(
    name: str, seed: int, rates: FaultRates = STORM, residency: ResidencyPolicy = DEFAULT_RESIDENCY
) -> SimulationResult:
    """One case in the weather of one seed, compared with how it ends when it is calm."""
    simulated = simulate(
        seed,
        simulated_run(name),
        rates=rates,
        store=_store(name),
        expected=calm(name),
        residency=residency,
    )
    run = simulated.ending.runs.get(RUN)
    outcome = "" if run is None else run.error + run.result
    if name in RACES or any(_said(other) in outcome for other in cases()[name].after_crash):
        simulated.differences.clear()
    return simulated


def _said(outcome: object) -> str:
    """What the record of a run says if it ended like this."""
    return outcome.text if isinstance(outcome, Failed) else str(outcome)


@cache
def calm(name: str) -> Ending:
    """How a case ends when nothing goes wrong."""
    plain = simulate(0, simulated_run(name), rates=CALM, store=_store(name))
    plain.check()
    return plain.ending


def simulated_run(name: str) -> SimulatedRun:
    case = cases()[name]

    async def world(outside: OutsideWorld) -> None:
        stage = staging.stage()
        stage.ledger = outside.ledger
        seen = RecordingStore(stage.store, outside.ledger.log, "world")
        stage.client = Client(seen, workflows=case.workflows)
        if case.world is not None:
            await case.world(stage)

    return SimulatedRun(case.workflow, case.args, id=RUN, workflows=case.others, world=world)


def _store(name: str) -> Any:
    def make(clock: Clock) -> Store:
        assert isinstance(clock, VirtualClock)
        stage = staging.Stage(cases()[name], MemoryStore(clock=clock), clock, EffectLedger())
        stage.clock = _StepClock(clock)  # type: ignore[assignment]
        staging._stage = stage
        return stage.store

    return make


class _StepClock:
    """The clock of the process whose step is asking, so that it stops when the process does; for
    the world, the clock itself."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        try:
            await sleep(seconds)
        except WorkflowMisuse:
            await self._clock.sleep(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)
