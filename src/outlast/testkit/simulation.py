"""What is simulated, and what became of it.

InPlace: threads that are none, for simulations.

simulate: workflows in bad weather, repeatable to the letter.

::

    @pytest.mark.parametrize("seed", range(300))
    def test_checkout_in_bad_weather(seed):
        simulate(seed, Subject(checkout, (order,), world=approve)).check()

Two processes share a store. In virtual time, all drawn from the seed, calls are delayed, lost,
doubled; a process dies and another is started; one stands still until others have taken over, and
goes on as if nothing had happened. Then it is calm. In the end every run must have come to the end
that it has without any of this, and history, ledger and what the processes saw must agree.

Steps that are plain functions run in place, one after the other, so that nothing depends on how
the operating system schedules threads. A simulation has an event loop of its own: call it from a
plain test, not from an async one.
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
from outlast.testing.effect_ledger import Ledger
from outlast.testing.scenario_result import Ending, changes, unstable
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.checker import RecordingStore, dump
from outlast.testkit.fault_schedule import CALM, STORM, FaultRates, FaultSchedule, FaultyProcess
from outlast.testkit.run_checks import violations


@dataclass(frozen=True)
class Outside:
    """What acts on runs from outside has: a client whose calls do not fail, the store, time."""

    client: Client
    store: Store
    clock: VirtualClock
    ledger: Ledger


@dataclass(frozen=True)
class Subject:
    """One run: its workflow and arguments, other workflows that it starts, and what the `world`
    does to it, from its beginning on."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    id: str = "run"
    workflows: tuple[Workflow[..., Any], ...] = ()
    world: Callable[[Outside], Awaitable[object]] | None = None


@dataclass
class Simulated:
    """What became of it. `violations` are promises that were not kept, `differences` what ended
    otherwise than in calm weather. `digest` is of the trace: the same for two simulations of one
    seed."""

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
        """A hash of all that happened."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    @property
    def was_given_up(self) -> bool:
        """Whether a step or a map was given up because its process died too often: then the
        outcome may be another, and rightly so."""
        return any(
            event.type in {EventType.STEP_FAILED, EventType.MAP_FAILED}
            and b"the process died" in bytes(event.data)
            for history in self.histories.values()
            for event in history
        )

    def check(self) -> None:
        """Raise if anything is not as it should be."""
        found = self.violations + self.differences
        if found:
            raise AssertionError("\n".join([f"seed {self.seed}, trace {self.digest}:", *found]))


P = ParamSpec("P")
T = TypeVar("T")


class InPlace(ThreadPoolExecutor):
    """Runs what it is given at once, on the spot."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future tells it
            future.set_exception(error)
        return future


MAX_LEAPS = 20_000

__all__ = ["Outside", "Simulated", "Subject", "simulate"]


def simulate(
    seed: int,
    *subjects: Subject,
    climate: FaultRates = STORM,
    store: Callable[[Clock], Store] | None = None,
    expected: Ending | None = None,
    **options: Any,
) -> Simulated:
    """Simulate runs in the weather that a seed makes.

    `expected` is the ending to compare with; without it, what two simulations in calm weather have
    in common. `store` makes a fresh store. `options` are those of `outlast.App`.
    """
    ignore: set[str] = set()
    if expected is None and climate is not CALM:
        plain, other = (
            simulate(calm, *subjects, climate=CALM, store=store, **options)
            for calm in (seed, seed + 1)
        )
        expected, ignore = plain.ending, unstable(plain.ending, other.ending)
    chance = random.getstate()
    random.seed(seed)  # the jitter of retries
    try:
        with asyncio.Runner() as runner, seeded(seed):
            simulation = _Simulation(seed, subjects, climate, store, options)
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
        subjects: tuple[Subject, ...],
        climate: FaultRates,
        make: Callable[[Clock], Store] | None,
        options: dict[str, Any],
    ) -> None:
        self._seed = seed
        self._subjects = subjects
        self._clock = VirtualClock()
        self._store = MemoryStore(clock=self._clock) if make is None else make(self._clock)
        lease = options.get("lease", LEASE_S)
        self._weather = FaultSchedule(seed, climate, self._clock, lease, self._mishap)
        self._lease = lease
        self._ledger = Ledger()
        self._options = options
        self._processes: list[FaultyProcess] = []
        self._living: dict[FaultyProcess, App] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: set[str] = set()
        self._problems: list[str] = []
        self._differences: list[str] = []

    async def run(self) -> Simulated:
        asyncio.get_running_loop().set_default_executor(InPlace())
        async with self._store:
            with self._clock.hold():
                worlds = [asyncio.create_task(self._world(one)) for one in self._subjects]
                for _ in range(self._weather.climate.processes):
                    await self._begin()
                await self._until_over(worlds)
            self._weather.clear_up()
            for task in self._tasks:
                task.cancel()
            for app in self._living.values():
                await asyncio.create_task(app.close())
            simulated = await self._simulated()
            for process in self._processes:
                process.die()
                await process.bury()
        return simulated

    async def _until_over(self, worlds: list[asyncio.Task[None]]) -> None:
        for _ in range(MAX_LEAPS):
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
            if not self._clock.leap():
                if left:
                    self._problems.append(f"I24: nothing more happens: {left}")
                elif waiting:
                    self._differences.append("the world waits for what does not come")
                return
        self._problems.append(f"I24: no end after {MAX_LEAPS} leaps: {await self._unfinished()}")

    async def _unfinished(self) -> list[str]:
        ids = (one.id for one in self._subjects)
        missing = [f"{id} has not begun" for id in ids if id not in self._begun]
        return missing + [
            f"{run.id} is {run.status}, {run.wait_kind}"
            async for run in self._store.find_all(RunQuery())
            if not run.status.terminal
        ]

    # -- processes ----------------------------------------------------------------------------

    async def _begin(self) -> None:
        name = f"process {len(self._processes) + 1}"
        process = FaultyProcess(self._store, self._clock, self._ledger, self._weather, name=name)
        workflows = {one.name: one for s in self._subjects for one in (s.workflow, *s.workflows)}
        app = App(process.store, workflows=workflows.values(), **self._options)
        process.runs(app, asyncio.create_task(self._live(process, app)))
        self._processes.append(process)
        self._living[process] = app
        self._weather.note(name, "begins")
        mishap = self._weather.mishap()
        if mishap is not None:
            self._background(process.meet(*mishap))

    async def _live(self, process: FaultyProcess, app: App) -> None:
        """What each process does: it starts the runs, as one before it may have done, and works."""
        await app.open()
        for subject in self._subjects:
            while subject.id not in self._begun:
                try:
                    await process.alive()
                    await app.start(
                        subject.workflow(*subject.args, **subject.kwargs), id=subject.id
                    )
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
        """Engines look again all the same after a while, told or not. Here they do it when it
        matters, because looking every second for a simulated month takes too long."""
        await self._clock.sleep(self._lease + 1)
        self._store.notifier.wake()

    async def _replace(self) -> None:
        await self._clock.sleep(self._weather.replacement())
        await self._begin()

    async def _world(self, subject: Subject) -> None:
        """The world acts once the run is there."""
        while await self._store.find_one(subject.id) is None:
            await self._clock.sleep(1)
        self._begun.add(subject.id)
        if subject.world is not None:
            seen = RecordingStore(self._store, self._ledger.log, "world")
            client = Client(seen, codec=self._options.get("codec") or JsonCodec())
            await subject.world(Outside(client, self._store, self._clock, self._ledger))

    # -- the end ------------------------------------------------------------------------------

    async def _simulated(self) -> Simulated:
        final = await dump(self._store)
        for line in self._ledger.executions:
            self._weather.note(line.process, f"{line.run_id} {line.key} {line.attempt}")
        for id, dumped in final.runs.items():
            for event in dumped.events:
                self._weather.note(id, f"{event.timestamp} {event.type} {event.step_name}")
        return Simulated(
            seed=self._seed,
            ending=Ending.of(final, observed=None, failed_actions=()),
            histories={id: dumped.events for id, dumped in final.runs.items()},
            trace=self._weather.trace,
            violations=self._problems + violations(final, self._ledger),
            crashes=self._weather.crashes,
            pauses=self._weather.pauses,
            faults=self._weather.faults,
            differences=self._differences,
        )
