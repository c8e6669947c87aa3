"""The stage: a case is played by processes that may die, in a world that goes on without them.

::

    world    signals, cancels, waits for the end          never dies
    process  an App ──╳ at the n-th call of the store     and another one takes its place
    store    memory, SQLite                               holds what was written

Time is virtual: it jumps when nothing is left to do. What steps would do in threads they do in
place, so that a case goes the same way every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import outlast
from outlast.client import Client
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.errors import NotFound, RunCancelled, RunFailed
from outlast.model import Event, Run
from outlast.model.query import RunQuery
from outlast.ports.store import Store
from outlast.testing.crashable_process import Crash, CrashableProcess
from outlast.testing.scenario_result import EffectLedger, StepExecution
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.checker import RecordingStore
from outlast.testkit.dump import dump
from outlast.testkit.faults import FaultyStore, Never, Plan, again
from outlast.testkit.run_checks import violations
from outlast.testkit.wrapped_store import WrappedStore
from tests.corpus.case import RUN, Cancelled, Case, Failed

T = TypeVar("T")
REAL_SECONDS = 20
"""A case that takes longer than this hangs: where it stands is told."""


class CrashPoint(NamedTuple):
    """Which call of the store, from 1 on, goes wrong, and how."""

    at: int
    crash: Crash

    def __call__(self, number: int, what: str) -> Crash | None:
        return self.crash if number == self.at else None


@dataclass
class Ending:
    """How a case ended, and all that can be known of it."""

    outcome: Any
    runs: dict[str, Run]
    histories: dict[str, list[Event]]
    executions: list[StepExecution]
    store_calls: list[str]
    """The calls of the store that the first process made."""
    crashed_at: str | None
    violations: list[str]
    notes: list[Any]


class Stage:
    """What a case's world may use: a client beside the processes, and time."""

    def __init__(self, case: Case, store: Store, clock: VirtualClock, ledger: EffectLedger) -> None:
        self.case = case
        self.clock = clock
        self.ledger = ledger
        self.store = ObservedStore(clock.watched(store))
        self.notes: list[Any] = []
        self.client = Client(
            RecordingStore(self.store, ledger.log, "world"),
            workflows=case.workflows,
        )

    async def until(self, reached: Callable[[Run], bool], run_id: str = RUN) -> Run:
        """Wait for a run to be in some state."""
        while True:
            change = self.store.change
            run = await self.store.find_one(run_id)
            if run is not None and reached(run):
                return run
            await change.wait()

    async def until_waiting(self, kind: str, run_id: str = RUN) -> Run:
        """Wait for a run to wait, out of memory."""
        return await self.until(lambda run: run.wait_kind == kind and run.owner is None, run_id)

    async def until_recorded(self, type: str, key: str = "", run_id: str = RUN) -> None:
        """Wait for an event."""
        while True:
            change = self.store.change
            history = await self.store.history(run_id)
            if any((event.type, event.step_name) == (type, key) for event in history):
                return
            await change.wait()

    async def until_all_have_ended(self) -> None:
        """Wait for the end of every run there is. Redis reads a page and then its runs: a run that continues as new in
        between has moved to another page, so the main one is also read by its id."""
        while True:
            change = self.store.change
            runs = [run async for run in self.store.find_all(RunQuery())]
            main = await self.store.find_one(RUN)
            if runs and all(run.status.terminal for run in (*runs, main) if run is not None):
                return
            await change.wait()

    async def signal(self, name: str, value: Any = None, *, dedup: str | None = None) -> None:
        """Send a signal to the run."""
        await self.client.get(RUN).signal(name, value, dedup=dedup)


class ObservedStore(WrappedStore):
    """A store that tells the world whenever something may have changed in it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.change = asyncio.Event()

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        try:
            return await call()
        finally:
            if name in {"commit", "send", "release", "delete"}:
                change, self.change = self.change, asyncio.Event()
                change.set()


class FreezingStore(WrappedStore):
    """A store as seen by a process that stands still from its n-th call on, until it is thawed."""

    def __init__(self, inner: Store, at: int) -> None:
        super().__init__(inner)
        self.frozen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.thawed = asyncio.Event()
        self._at = at
        self._calls = 0

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        self._calls += 1
        if self._calls == self._at:
            self.frozen.set_result(None)
        if self.frozen.done():
            await self.thawed.wait()
        return await call()


# -- what steps know of it ------------------------------------------------------------------------

_stage: Stage | None = None


def stage() -> Stage:
    """The stage that is being played on."""
    assert _stage is not None
    return _stage


def notes() -> list[Any]:
    """What steps, workflow code and the world have noted."""
    return stage().notes


def undone(line: str) -> None:
    """Leave a note of an undo, once per line: a crash may repeat a body, as everywhere."""
    if line not in notes():
        notes().append(line)


async def takes(seconds: float) -> None:
    """Be busy for so long."""
    await stage().clock.sleep(seconds)


# -- playing --------------------------------------------------------------------------------------


async def play(
    case: Case,
    make_store: Callable[[VirtualClock], Store],
    crash_point: CrashPoint | None = None,
    *,
    faults: Plan | None = None,
    freeze: int = 0,
    residency: ResidencyPolicy = DEFAULT_RESIDENCY,
) -> Ending:
    """Play a case to its end, through a death and faults of the store if need be. With `freeze`
    the first process stands still from that call on, as if its machine had gone to sleep, and goes
    on when another one has done its work."""
    global _stage
    asyncio.get_running_loop().set_default_executor(InlineExecutor())
    clock = VirtualClock()
    async with make_store(clock) as store:
        playing = _stage = Stage(case, store, clock, EffectLedger())
        world = asyncio.create_task(_world(playing))
        processes: list[CrashableProcess] = []
        try:
            async with asyncio.timeout(REAL_SECONDS):
                await _processes(
                    playing, world, processes, crash_point, faults or Never(), freeze, residency
                )
                return await _ending(playing, processes)
        except TimeoutError:
            stand = [
                (run.id, run.status, run.wait_kind) async for run in store.find_all(RunQuery())
            ]
            raise AssertionError(
                f"{case.id} hangs at {clock.now()}: {stand}, {crash_point}"
            ) from None
        finally:
            world.cancel()
            await asyncio.wait((world,))
            for process in processes:
                process.die()
                await process.discard()


async def _processes(
    stage: Stage,
    world: asyncio.Task[None],
    processes: list[CrashableProcess],
    crash_point: CrashPoint | None,
    faults: Plan,
    freeze: int,
    residency: ResidencyPolicy,
) -> None:
    """One process after the other, until the world has seen the end."""
    store = FaultyStore(stage.store, faults)
    asleep: list[tuple[outlast.App, FreezingStore]] = []
    while not world.done():
        name = f"process {len(processes) + 1}"
        process = _Process(store, stage.clock, stage.ledger, name=name, crash_point=crash_point)
        processes.append(process)
        freezing = FreezingStore(process.store, freeze)
        crash_point, freeze = None, 0
        app = outlast.App(freezing, workflows=stage.case.workflows, residency=residency)
        working = asyncio.create_task(_works(app, stage.case))
        process.attach(app, working)
        ends = (world, working, process.death, freezing.frozen)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        if freezing.frozen.done():
            asleep.append((app, freezing))
        elif not process.dead:
            await app.close()
    for app, freezing in asleep:
        freezing.thawed.set()
        await stage.clock.settle()
        await app.close()
    world.result()


class _Process(CrashableProcess):
    """A process whose death can be waited for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def die(self) -> None:
        super().die()
        if not self.death.done():
            self.death.set_result(None)


async def _works(app: outlast.App, case: Case) -> None:
    """What a process does: it starts the run, as it may have done before, and works."""
    await app.open()
    await again(lambda: app.start(case.workflow(*case.args), id=RUN))
    await asyncio.get_running_loop().create_future()


async def _world(stage: Stage) -> None:
    """What the case says happens, and then the wait for all to end."""
    await stage.until(lambda _: True)
    if stage.case.world is not None:
        await stage.case.world(stage)
    await stage.until_all_have_ended()


async def _ending(stage: Stage, processes: list[CrashableProcess]) -> Ending:
    held = await dump(stage.store.inner, listed=False)
    ledger = stage.ledger
    try:
        outcome = await stage.client.get(RUN).result(timeout=0)
    except RunCancelled as cancelled:
        outcome = Cancelled(cancelled.error)
    except RunFailed as failed:
        outcome = Failed(failed.error)
    except (TimeoutError, NotFound) as nothing:
        outcome = nothing
    histories = {id: found.events for id, found in held.runs.items()}
    return Ending(
        outcome=outcome,
        runs={id: found.run for id, found in held.runs.items()},
        histories=histories,
        executions=ledger.executions,
        store_calls=processes[0].store_calls,
        crashed_at=processes[0].crashed_at,
        violations=violations(held, ledger),
        notes=stage.notes,
    )


class InlineExecutor(ThreadPoolExecutor):
    """Runs what it is given at once, on the spot."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future tells it
            future.set_exception(error)
        return future
