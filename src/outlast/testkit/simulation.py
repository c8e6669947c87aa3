"""simulate: runs workflows under faults that are drawn from a seed, deterministically.

::

    @pytest.mark.parametrize("seed", range(300))
    def test_checkout_under_faults(seed):
        simulate(seed, SimulatedRun(checkout, (order,), world=approve)).check()

Two processes share a store, in virtual time. The seed decides which calls are delayed, lost or
duplicated, when a process crashes and is replaced, and when one is suspended past its lease and
continues as a zombie. Then the faults stop. Every run must end as it does without faults, and
history, effect ledger and the log of store calls must agree.

Plain step functions run inline, so that the result does not depend on thread scheduling. A simulation
has its own event loop: call it from a plain test, not from an async one.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from outlast.app import App
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.decorators import Workflow
from outlast.engine.definitions.retry import MAX_INTERRUPTIONS
from outlast.engine.runner.engine import LEASE_S
from outlast.errors import RunExists, TryAgain
from outlast.model.event import Event, EventType
from outlast.model.ids import seeded
from outlast.model.query import RunQuery
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.scenario_result import EffectLedger, Ending, changes, unstable
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.checker import RecordingStore, dump
from outlast.testkit.fault_schedule import CALM, STORM, FaultRates, FaultSchedule, FaultyProcess
from outlast.testkit.run_checks import violations


@dataclass(frozen=True)
class OutsideWorld:
    """What the world of a simulated run can use: a client whose calls do not fail, the store, the clock."""

    client: Client
    store: Store
    clock: VirtualClock
    ledger: EffectLedger


@dataclass(frozen=True)
class SimulatedRun:
    """One run: its workflow and arguments, other workflows that it starts, and what the `world`
    does to it, from its beginning on."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    id: str = "run"
    workflows: tuple[Workflow[..., Any], ...] = ()
    world: Callable[[OutsideWorld], Awaitable[object]] | None = None


@dataclass
class SimulationResult:
    """How a simulation ended. `violations` are broken promises, `differences` what differs from a
    simulation without faults. `digest` is the hash of the trace: equal for equal seeds."""

    seed: int
    ending: Ending
    histories: dict[str, list[Event]]
    trace: list[str]
    violations: list[str]
    crashes: int
    pauses: int
    faults: int
    differences: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """A hash of the trace."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    @property
    def was_given_up(self) -> bool:
        """Whether a step or a map failed because its process crashed too often: then another outcome
        is correct."""
        return any(
            event.type in {EventType.STEP_FAILED, EventType.MAP_FAILED}
            and b"the process died" in bytes(event.data)
            for history in self.histories.values()
            for event in history
        )

    def check(self) -> None:
        """Raise on a violation or a difference."""
        found = self.violations + self.differences
        if found:
            raise AssertionError("\n".join([f"seed {self.seed}, trace {self.digest}:", *found]))


P = ParamSpec("P")
T = TypeVar("T")


class InlineExecutor(ThreadPoolExecutor):
    """Runs each function inline instead of in a thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future holds it
            future.set_exception(error)
        return future


MAX_JUMPS = 20_000

__all__ = ["OutsideWorld", "SimulatedRun", "SimulationResult", "simulate"]


def simulate(
    seed: int,
    *runs: SimulatedRun,
    rates: FaultRates = STORM,
    store: Callable[[Clock], Store] | None = None,
    expected: Ending | None = None,
    **options: Any,
) -> SimulationResult:
    """Simulate runs under the faults of a seed.

    `expected` is the ending to compare with; the default is what two simulations without faults have
    in common. `store` makes a new store. `options` are those of `outlast.App`.
    """
    ignore: set[str] = set()
    if expected is None and rates is not CALM:
        plain, other = (
            simulate(calm, *runs, rates=CALM, store=store, **options) for calm in (seed, seed + 1)
        )
        expected, ignore = plain.ending, unstable(plain.ending, other.ending)
    chance = random.getstate()
    random.seed(seed)  # the jitter of retries
    try:
        with asyncio.Runner() as runner, seeded(seed):
            simulation = _Simulation(seed, runs, rates, store, options)
            simulated = runner.run(simulation.run())
    finally:
        random.setstate(chance)
    mishaps = simulated.crashes + simulated.pauses
    given_up = mishaps >= MAX_INTERRUPTIONS and simulated.was_given_up
    if given_up:
        simulated.differences.clear()
    elif expected is not None:
        found = changes(expected, simulated.ending, strict=False)
        simulated.differences += [text for name, text in found if name not in ignore]
    return simulated


class _Simulation:
    def __init__(
        self,
        seed: int,
        runs: tuple[SimulatedRun, ...],
        rates: FaultRates,
        make: Callable[[Clock], Store] | None,
        options: dict[str, Any],
    ) -> None:
        self._seed = seed
        self._runs = runs
        self._clock = VirtualClock()
        self._store = MemoryStore(clock=self._clock) if make is None else make(self._clock)
        lease = options.get("lease", LEASE_S)
        self._schedule = FaultSchedule(seed, rates, self._clock, lease, self._mishap)
        self._lease = lease
        self._ledger = EffectLedger()
        self._options = options
        self._processes: list[FaultyProcess] = []
        self._living: dict[FaultyProcess, App] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started: set[str] = set()
        self._problems: list[str] = []
        self._differences: list[str] = []

    async def run(self) -> SimulationResult:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        async with self._store:
            with self._clock.hold():
                worlds = [asyncio.create_task(self._world(one)) for one in self._runs]
                for _ in range(self._schedule.rates.processes):
                    await self._begin()
                await self._until_over(worlds)
            self._schedule.clear_up()
            for task in self._tasks:
                task.cancel()
            for app in self._living.values():
                await asyncio.create_task(app.close())
            simulated = await self._simulated()
            for process in self._processes:
                process.die()
                await process.discard()
        return simulated

    async def _until_over(self, worlds: list[asyncio.Task[None]]) -> None:
        for _ in range(MAX_JUMPS):
            await self._clock.settle()
            for process in [one for one in self._living if one.dead]:
                del self._living[process]
                self._background(self._replace())
            for world in worlds:
                if world.done():
                    await world
            left = await self._unfinished()
            waiting = any(not world.done() for world in worlds)
            # A zombie that is left may try to change what has ended: it shall.
            if not (left or waiting or any(one.is_paused for one in self._living)):
                return
            if not self._clock.jump():
                if left:
                    self._problems.append(f"I24: these runs do not advance: {left}")
                elif waiting:
                    self._differences.append(
                        "the world of a run waits, and nothing is left to happen"
                    )
                return
        self._problems.append(f"I24: no end after {MAX_JUMPS} jumps: {await self._unfinished()}")

    async def _unfinished(self) -> list[str]:
        ids = (one.id for one in self._runs)
        missing = [f"{id} has not started" for id in ids if id not in self._started]
        return missing + [
            f"{run.id} is {run.status}, {run.wait_kind}"
            async for run in self._store.find_all(RunQuery())
            if not run.status.terminal
        ]

    # -- processes ----------------------------------------------------------------------------

    async def _begin(self) -> None:
        name = f"process {len(self._processes) + 1}"
        process = FaultyProcess(self._store, self._clock, self._ledger, self._schedule, name=name)
        workflows = {one.name: one for s in self._runs for one in (s.workflow, *s.workflows)}
        app = App(process.store, workflows=workflows.values(), **self._options)
        process.attach(app, asyncio.create_task(self._live(process, app)))
        self._processes.append(process)
        self._living[process] = app
        self._schedule.note(name, "starts")
        mishap = self._schedule.mishap()
        if mishap is not None:
            self._background(process.meet(*mishap))

    async def _live(self, process: FaultyProcess, app: App) -> None:
        """Open the app and start the runs, unless an earlier process has."""
        await app.open()
        for run in self._runs:
            while run.id not in self._started:
                try:
                    await process.ensure_alive()
                    await app.start(run.workflow(*run.args, **run.kwargs), id=run.id)
                except TryAgain:
                    await process.clock.sleep(1)
                    continue
                except RunExists:
                    pass  # in a later life, with other input
                break

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)

    def _mishap(self) -> None:
        self._background(self._wake())

    async def _wake(self) -> None:
        """Wake the engines after a fault. In production they poll; polling through a simulated month
        would take too long."""
        await self._clock.sleep(self._lease + 1)
        self._store.notifier.wake()

    async def _replace(self) -> None:
        await self._clock.sleep(self._schedule.replacement())
        await self._begin()

    async def _world(self, run: SimulatedRun) -> None:
        """Call the world of a run once the run exists."""
        while await self._store.find_one(run.id) is None:
            await self._clock.sleep(1)
        self._started.add(run.id)
        if run.world is not None:
            seen = RecordingStore(self._store, self._ledger.log, "world")
            client = Client(seen, codec=self._options.get("codec") or JsonCodec())
            await run.world(OutsideWorld(client, self._store, self._clock, self._ledger))

    # -- the end ------------------------------------------------------------------------------

    async def _simulated(self) -> SimulationResult:
        final = await dump(self._store)
        for line in self._ledger.executions:
            self._schedule.note(line.process, f"{line.run_id} {line.key} {line.attempt}")
        for id, dumped in final.runs.items():
            for event in dumped.events:
                self._schedule.note(id, f"{event.timestamp} {event.type} {event.step_name}")
        return SimulationResult(
            seed=self._seed,
            ending=Ending.of(final, observed=None, failed_actions=()),
            histories={id: dumped.events for id, dumped in final.runs.items()},
            trace=self._schedule.trace,
            violations=self._problems + violations(final, self._ledger),
            crashes=self._schedule.crashes,
            pauses=self._schedule.pauses,
            faults=self._schedule.faults,
            differences=self._differences,
        )
