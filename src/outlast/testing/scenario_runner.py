"""run_scenario: runs a scenario in virtual time with at most one crash, until it cannot advance."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outlast.app import App
from outlast.client import Client, RunHandle
from outlast.codecs import JsonCodec
from outlast.decorators import Workflow
from outlast.errors import OutlastError
from outlast.model.event import Event, EventType
from outlast.model.run import Status
from outlast.ports.clock import Clock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.crashable_process import CrashableProcess, CrashPoint
from outlast.testing.scenario_result import EffectLedger, Ending, StepExecution
from outlast.testing.virtual_clock import START, VirtualClock
from outlast.testkit.checker import RecordingStore, dump
from outlast.testkit.run_checks import violations

MAX_JUMPS = 100_000
MAX_BUSY_JUMPS = 100
MAX_PROCESSES = 20

ActionFunction = Callable[[RunHandle[Any]], Awaitable[object] | object]


@dataclass(frozen=True)
class At:
    """An action `seconds` after the start."""

    seconds: float
    act: ActionFunction


Action = ActionFunction | At


@dataclass(frozen=True)
class Scenario:
    """A workflow with its arguments, and the actions on its run."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    id: str = "run"
    actions: tuple[Action, ...] = ()
    workflows: tuple[Workflow[..., Any], ...] = ()
    setup: Callable[[], object] | None = None
    observe: Callable[[], object] | None = None
    store: Callable[[Clock], Store] | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScenarioResult:
    """How a scenario ended, and the evidence for the checker."""

    ending: Ending
    histories: dict[str, list[Event]]
    store_calls: list[str]
    crashed_at: str | None
    executions: list[StepExecution]
    repeated: dict[tuple[str, str], list[StepExecution]]
    violations: list[str]


async def run_scenario(
    scenario: Scenario,
    *,
    crash_point: CrashPoint | None = None,
    start: datetime = START,
    seed: object = None,
) -> ScenarioResult:
    """Run a scenario until it cannot advance. The first process always has the same random seed, so
    that all runs make the same calls until the crash; the next one gets another, derived from `seed`,
    so that nondeterministic code takes another path."""
    if scenario.setup is not None:
        await _maybe_await(scenario.setup())
    clock = VirtualClock(start)
    store = MemoryStore(clock=clock) if scenario.store is None else scenario.store(clock)
    chance = random.getstate()
    try:
        async with store:
            return await _ScenarioRunner(scenario, store, clock, crash_point, seed).run_scenario()
    finally:
        random.setstate(chance)


class _ScenarioRunner:
    def __init__(
        self,
        scenario: Scenario,
        store: Store,
        clock: VirtualClock,
        crash_point: CrashPoint | None,
        seed: object,
    ) -> None:
        self._scenario = scenario
        self._store = store
        self._clock = clock
        self._crash_point = crash_point
        self._seed = seed
        self._ledger = EffectLedger()
        self._processes: list[CrashableProcess] = []
        # The actions come from another process, which does not crash.
        outside = RecordingStore(store, self._ledger.log, "outside")
        codec = scenario.options.get("codec") or JsonCodec()
        self._client = Client(clock.watched(outside), codec=codec)
        self._waiting = deque(one for one in scenario.actions if not isinstance(one, At))
        self._timed = [one for one in scenario.actions if isinstance(one, At)]
        self._acting: asyncio.Task[None] | None = None
        self._failed_actions: list[str] = []

    async def run_scenario(self) -> ScenarioResult:
        with self._clock.hold():
            timed = [asyncio.create_task(self._at(one)) for one in self._timed]
            try:
                app = await self._until_rest()
                await asyncio.create_task(app.close())
                return await self._result()
            finally:
                for task in [*timed, *filter(None, [self._acting])]:
                    task.cancel()
                for process in self._processes:
                    process.die()
                    await process.discard()

    async def _until_rest(self) -> App:
        """Start process after process, until one reaches the end of the scenario."""
        while len(self._processes) < MAX_PROCESSES:
            crash_point, self._crash_point = self._crash_point, None
            name = f"process {len(self._processes) + 1}"
            process = CrashableProcess(
                self._store, self._clock, self._ledger, name=name, crash_point=crash_point
            )
            self._processes.append(process)
            # The jitter of retries is drawn from here too.
            random.seed(f"{self._seed}, {name}" if len(self._processes) > 1 else 0)
            app = App(process.store, workflows=self._scenario.workflows, **self._scenario.options)
            starting = asyncio.create_task(self._start(app))
            process.attach(app, starting)
            if await self._rests(process, starting):
                return app
        raise AssertionError(f"{MAX_PROCESSES} processes crashed, one after the other")

    async def _start(self, app: App) -> None:
        await app.open()
        scenario = self._scenario
        if await self._store.find_one(scenario.id) is None:
            await app.start(scenario.workflow(*scenario.args, **scenario.kwargs), id=scenario.id)

    async def _rests(self, process: CrashableProcess, starting: asyncio.Task[None]) -> bool:
        """Advance until nothing is left to do; False if the process crashes before."""
        patience = MAX_BUSY_JUMPS
        for _ in range(MAX_JUMPS):
            await self._clock.settle()
            if process.dead:
                return False
            patience = patience - 1 if self._clock.busy else MAX_BUSY_JUMPS
            if not patience:
                raise AssertionError(self._ledger.hanging())
            if starting.done():
                await starting
            if self._acting is not None and self._acting.done():
                await self._acting
                self._acting = None
            if self._acting is None and self._waiting and await self._wants_action():
                self._act_next()
            elif not self._clock.jump():
                if self._acting is not None:
                    raise AssertionError("an action waits, and nothing is left to happen")
                if not self._waiting:
                    return True
                self._act_next()
        raise AssertionError(
            f"{self._scenario.id!r} does not end within {MAX_JUMPS} jumps of the clock"
        )

    # -- from outside -------------------------------------------------------------------------

    async def _wants_action(self) -> bool:
        """Whether the run is parked with an empty inbox and waits for a signal, a halt or a resume."""
        run = await self._store.find_one(self._scenario.id)
        if run is None or run.status.terminal or run.owner is not None:
            return False
        if run.runnable_at is not None and run.runnable_at <= self._clock.now():
            return False
        if run.status is Status.PAUSED:
            return True
        return waits_for_message(await self._store.history(run.id))

    def _act_next(self) -> None:
        # As a task, because an action may wait for an answer while time passes.
        self._acting = asyncio.create_task(self._act(self._waiting.popleft()))

    async def _at(self, timed: At) -> None:
        await self._clock.sleep(timed.seconds)
        await self._act(timed.act)

    async def _act(self, act: ActionFunction) -> None:
        try:
            await _maybe_await(act(self._client.get(self._scenario.id)))
        except OutlastError as error:
            self._failed_actions.append(f"{type(error).__name__}: {error}")

    # -- the end ------------------------------------------------------------------------------

    async def _result(self) -> ScenarioResult:
        final = await dump(self._store)
        observed = None
        if self._scenario.observe is not None:
            observed = await _maybe_await(self._scenario.observe())
        histories = {id: run.events for id, run in final.runs.items()}
        crashed_at = [
            process.crashed_at for process in self._processes if process.crashed_at is not None
        ]
        return ScenarioResult(
            ending=Ending.of(final, observed=observed, failed_actions=self._failed_actions),
            histories=histories,
            store_calls=self._processes[0].store_calls,
            crashed_at=crashed_at[0] if crashed_at else None,
            executions=self._ledger.executions,
            repeated=self._ledger.repeated(),
            violations=violations(final, self._ledger),
        )


def waits_for_message(history: list[Event]) -> bool:
    """Whether the run waits for a signal or in a halt."""
    waiting: set[str] = set()
    for event in history:
        if event.type in {EventType.SIGNAL_WAITING, EventType.HALT_STARTED}:
            waiting.add(event.step_name)
        elif event.type in _ANSWERS:
            waiting.discard(event.step_name)
    return bool(waiting)


_ANSWERS = {
    EventType.SIGNAL_RECEIVED,
    EventType.SIGNAL_TIMEOUT,
    EventType.HALT_RESUMED,
    EventType.OPERATION_ABANDONED,
}


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
