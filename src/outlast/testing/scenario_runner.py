"""Conducting: one run of a scenario in virtual time, with at most one crash, from start to rest."""

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
from outlast.testing.clock import START
from outlast.testing.crashable_process import CrashPoint, Process
from outlast.testing.effect_ledger import Execution, Ledger
from outlast.testing.scenario_result import Ending
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.checker import RecordingStore, dump
from outlast.testkit.run_checks import violations

MAX_LEAPS = 100_000
MAX_BUSY_LEAPS = 100
MAX_PROCESSES = 20

Acting = Callable[[RunHandle[Any]], Awaitable[object] | object]


@dataclass(frozen=True)
class At:
    """An action at a time: so many seconds after the start."""

    seconds: float
    act: Acting


Action = Acting | At


@dataclass(frozen=True)
class Scenario:
    """What is run, and what happens to it from outside."""

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
class Conducted:
    """What became of it."""

    ending: Ending
    histories: dict[str, list[Event]]
    sites: list[str]
    struck: str | None
    executions: list[Execution]
    repeated: dict[tuple[str, str], list[Execution]]
    violations: list[str]


async def conduct(
    scenario: Scenario,
    *,
    doom: CrashPoint | None = None,
    start: datetime = START,
    luck: object = None,
) -> Conducted:
    """Run a scenario until nothing more will happen by itself. The first process always draws the
    same random numbers, so that all runs make the same calls until a crash; the next one draws
    others, which follow from `luck`: code that tosses a coin takes another way in it."""
    if scenario.setup is not None:
        await _maybe_await(scenario.setup())
    clock = VirtualClock(start)
    store = MemoryStore(clock=clock) if scenario.store is None else scenario.store(clock)
    chance = random.getstate()
    try:
        async with store:
            return await _Conductor(scenario, store, clock, doom, luck).conduct()
    finally:
        random.setstate(chance)


class _Conductor:
    def __init__(
        self,
        scenario: Scenario,
        store: Store,
        clock: VirtualClock,
        doom: CrashPoint | None,
        luck: object,
    ) -> None:
        self._scenario = scenario
        self._store = store
        self._clock = clock
        self._doom = doom
        self._luck = luck
        self._ledger = Ledger()
        self._processes: list[Process] = []
        # Whoever acts on the run is another process, which does not die.
        outside = RecordingStore(store, self._ledger.log, "outside")
        codec = scenario.options.get("codec") or JsonCodec()
        self._client = Client(clock.watched(outside), codec=codec)
        self._waiting = deque(one for one in scenario.actions if not isinstance(one, At))
        self._timed = [one for one in scenario.actions if isinstance(one, At)]
        self._acting: asyncio.Task[None] | None = None
        self._failed_actions: list[str] = []

    async def conduct(self) -> Conducted:
        with self._clock.hold():
            timed = [asyncio.create_task(self._at(one)) for one in self._timed]
            try:
                app = await self._until_rest()
                await asyncio.create_task(app.close())
                return await self._conducted()
            finally:
                for task in [*timed, *filter(None, [self._acting])]:
                    task.cancel()
                for process in self._processes:
                    process.die()
                    await process.bury()

    async def _until_rest(self) -> App:
        """Process after process, until one lives to see that nothing more happens."""
        while len(self._processes) < MAX_PROCESSES:
            doom, self._doom = self._doom, None
            name = f"process {len(self._processes) + 1}"
            process = Process(self._store, self._clock, self._ledger, name=name, doom=doom)
            self._processes.append(process)
            # The jitter of retries is drawn from here too.
            random.seed(f"{self._luck}, {name}" if len(self._processes) > 1 else 0)
            app = App(process.store, workflows=self._scenario.workflows, **self._scenario.options)
            starting = asyncio.create_task(self._start(app))
            process.runs(app, starting)
            if await self._rests(process, starting):
                return app
        raise AssertionError("one process after the other died")

    async def _start(self, app: App) -> None:
        await app.open()
        scenario = self._scenario
        if await self._store.find_one(scenario.id) is None:
            await app.start(scenario.workflow(*scenario.args, **scenario.kwargs), id=scenario.id)

    async def _rests(self, process: Process, starting: asyncio.Task[None]) -> bool:
        """Go on until nothing more happens; False if the process dies before."""
        patience = MAX_BUSY_LEAPS
        for _ in range(MAX_LEAPS):
            await self._clock.settle()
            if process.dead:
                return False
            patience = patience - 1 if self._clock.busy else MAX_BUSY_LEAPS
            if not patience:
                raise AssertionError(self._ledger.hanging())
            if starting.done():
                await starting
            if self._acting is not None and self._acting.done():
                await self._acting
                self._acting = None
            if self._acting is None and self._waiting and await self._wants_action():
                self._act_next()
            elif not self._clock.leap():
                if self._acting is not None:
                    raise AssertionError("an action waits for what will never be")
                if not self._waiting:
                    return True
                self._act_next()
        raise AssertionError(f"{self._scenario.id!r} goes on for more than {MAX_LEAPS} leaps")

    # -- from outside -------------------------------------------------------------------------

    async def _wants_action(self) -> bool:
        """Whether the run rests, with nothing unread that would wake it, and waits for somebody."""
        run = await self._store.find_one(self._scenario.id)
        if run is None or run.status.terminal or run.owner is not None:
            return False
        if run.runnable_at is not None and run.runnable_at <= self._clock.now():
            return False
        if run.status is Status.PAUSED:
            return True
        return waits_for_somebody(await self._store.history(run.id))

    def _act_next(self) -> None:
        # Time goes on meanwhile: what it does may wait for an answer.
        self._acting = asyncio.create_task(self._act(self._waiting.popleft()))

    async def _at(self, timed: At) -> None:
        await self._clock.sleep(timed.seconds)
        await self._act(timed.act)

    async def _act(self, act: Acting) -> None:
        try:
            await _maybe_await(act(RunHandle(self._client, self._scenario.id)))
        except OutlastError as error:
            self._failed_actions.append(f"{type(error).__name__}: {error}")

    # -- the end ------------------------------------------------------------------------------

    async def _conducted(self) -> Conducted:
        final = await dump(self._store)
        observed = None
        if self._scenario.observe is not None:
            observed = await _maybe_await(self._scenario.observe())
        histories = {id: run.events for id, run in final.runs.items()}
        struck = [process.struck for process in self._processes if process.struck is not None]
        return Conducted(
            ending=Ending.of(final, observed=observed, failed_actions=self._failed_actions),
            histories=histories,
            sites=self._processes[0].sites,
            struck=struck[0] if struck else None,
            executions=self._ledger.executions,
            repeated=self._ledger.repeated(),
            violations=violations(final, self._ledger),
        )


def waits_for_somebody(history: list[Event]) -> bool:
    """Whether a signal or a person is being waited for."""
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
