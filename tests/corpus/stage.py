"""The stage: a case is played by processes that may die, in a world that goes on without them.

::

    world    signals, cancels, waits for the end          never dies
    process  App on a doomed store ──╳ at the n-th call   and another one takes its place
    store    memory, SQLite                               holds what was written

Time is virtual: it leaps when nothing is left to do. Threads of steps are run in place, so that a
case goes the same way every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import outlast
from outlast.api import Workflow
from outlast.client import Client
from outlast.codecs import JsonCodec
from outlast.engine.bodies import StepContext
from outlast.errors import RunCancelled, RunFailed, UnknownOutcome
from outlast.model import Event, Run, Status
from outlast.model.query import RunQuery
from outlast.ports.store import Store
from outlast.testing.checker import Effect, Evidence, Log, RecordingStore, Violation, check
from outlast.testing.dump import dump
from outlast.testing.virtual import VirtualClock
from outlast.testing.wrapping import WrappedStore
from tests.corpus.case import Cancelled, Case, Failed

T = TypeVar("T")
REAL_SECONDS = 20
"""A case that takes longer than this hangs: its last state is told."""

RUN = "run"
"""The id of the run that a case is about."""


class Death(StrEnum):
    """What becomes of the n-th call of the store."""

    BEFORE = "before"  # the process dies, and nothing was done
    AFTER = "after"  # the process dies, and it was done
    ERROR = "error"  # it was done, and the process hears that nobody knows; it lives on


class Doom(NamedTuple):
    """Which call, from 1 on, and what becomes of it."""

    at: int
    death: Death


@dataclass
class Ending:
    """How a case ended, and all that can be known of it."""

    outcome: Any
    runs: dict[str, Run]
    histories: dict[str, list[Event]]
    effects: list[Effect]
    calls: list[str]
    deaths: int
    violations: list[Violation]
    seen: list[Any] = field(default_factory=list)


class Stage:
    """What a case's world may use: a client beside the processes, and time."""

    def __init__(self, case: Case, store: Store, clock: VirtualClock, log: Log) -> None:
        self.case = case
        self.clock = clock
        self.log = log
        self.store = store
        self.seen: list[Any] = []
        """What the world or a step has noted, for the test to look at."""
        self.client = Client(
            RecordingStore(store, log, "world"),
            codec=JsonCodec(),
            workflows={workflow.name: workflow.definition for workflow in case.workflows},
        )

    async def until(self, reached: Callable[[Run], bool], run_id: str = RUN) -> Run:
        """Wait for a run to be in some state."""
        while True:
            rings = self.store.notifier.rings
            run = await self.store.find_one(run_id)
            if run is not None and reached(run):
                return run
            await self.store.notifier.wait(self.clock, float("inf"), since=rings)

    async def until_waiting(self, kind: str, run_id: str = RUN) -> Run:
        """Wait for a run to wait."""
        return await self.until(lambda run: run.wait_kind == kind and run.owner is None, run_id)

    async def until_recorded(self, type: str, key: str = "", run_id: str = RUN) -> None:
        """Wait for an event."""
        while True:
            rings = self.store.notifier.rings
            history = await self.store.history(run_id)
            if any((event.type, event.step_name) == (type, key) for event in history):
                return
            await self.store.notifier.wait(self.clock, float("inf"), since=rings)

    async def signal(self, name: str, value: Any = None, *, dedup: str | None = None) -> None:
        """Send a signal to the run."""
        await self.client.signal(RUN, name, value, dedup=dedup)

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds)


class LedgerClock(VirtualClock):
    """A clock that is told of every attempt, and writes it into the ledger."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    @asynccontextmanager
    async def attempt(self, body: object, *, elsewhere: bool) -> AsyncIterator[None]:
        assert isinstance(body, StepContext)
        begun, ended = self._log.tick(), None
        try:
            async with super().attempt(body, elsewhere=elsewhere):
                yield
            ended = self._log.tick()
        finally:
            effect = Effect(run_id=body.run_id, step=body.key, begun=begun, ended=ended)
            self._log.effects.append(effect)


class DoomedStore(WrappedStore):
    """The store as one process sees it, up to the call at which that process dies."""

    def __init__(self, inner: Store, doom: Doom | None) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self.dead = asyncio.Event()
        self._doom = doom

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        if self.dead.is_set():
            await asyncio.get_running_loop().create_future()
        self.calls.append(name)
        if self._doom is None or len(self.calls) != self._doom.at:
            return await call()
        if self._doom.death is not Death.BEFORE:
            await call()
        if self._doom.death is Death.ERROR:
            raise UnknownOutcome(f"nobody knows what became of {name}")
        self.dead.set()
        await asyncio.get_running_loop().create_future()
        raise AssertionError("the dead do not return")


_stage: Stage | None = None


def stage() -> Stage:
    """The stage that is being played on: for steps that take time or leave a note."""
    assert _stage is not None
    return _stage


async def takes(seconds: float) -> None:
    """Be busy, in a step, for so long."""
    await stage().clock.sleep(seconds)


async def play(
    case: Case,
    store: Callable[[VirtualClock], Store],
    doom: Doom | None = None,
    *,
    second: tuple[Workflow[..., Any], ...] | None = None,
) -> Ending:
    """Play a case to its end, through deaths if need be. `second` is the code of whoever comes
    after a death, if it is other code."""
    global _stage
    log = Log()
    clock = LedgerClock(log)
    survivor = store(clock)
    asyncio.get_running_loop().set_default_executor(InPlace())
    await survivor.open()
    _stage = Stage(case, survivor, clock, log)
    world = asyncio.create_task(_world(_stage))
    spared = asyncio.all_tasks()
    calls: list[str] = []
    deaths = 0
    workflows = case.workflows
    try:
        async with asyncio.timeout(REAL_SECONDS):
            while True:
                doomed = DoomedStore(survivor, doom if not deaths else None)
                app = outlast.App(
                    RecordingStore(doomed, log, f"process {deaths}"), workflows=workflows
                )
                playing = asyncio.create_task(_process(app, case, world))
                dying = asyncio.create_task(doomed.dead.wait())
                await asyncio.wait((playing, dying), return_when=asyncio.FIRST_COMPLETED)
                calls += doomed.calls
                if not dying.done():
                    dying.cancel()
                    playing.result()
                    world.result()
                    break
                deaths += 1
                await _kill(asyncio.all_tasks() - spared)
                workflows = second or workflows
            return await _ending(_stage, calls, deaths)
    except TimeoutError:
        state = {run.id: (run.status, run.wait_kind) async for run in survivor.find_all(RunQuery())}
        raise AssertionError(f"{case.id} hangs at {clock.now()}: {state}, {doom}") from None
    finally:
        world.cancel()
        await _kill(asyncio.all_tasks() - spared | {world})
        await survivor.close()


async def _process(app: outlast.App, case: Case, world: asyncio.Task[None]) -> None:
    """What a process does: it starts the run, as it may have done before, and works."""
    async with app:
        await app.start(case.workflow, *case.args, id=RUN)
        await asyncio.wait((world,))


async def _world(stage: Stage) -> None:
    """What the case says, and then the wait for all runs to end."""
    await stage.until(lambda _: True)
    if stage.case.world is not None:
        await stage.case.world(stage)
    await stage.until(lambda run: run.status.terminal)
    while True:
        rings = stage.store.notifier.rings
        others = [
            run
            async for run in stage.store.find_all(RunQuery())
            if not run.status.terminal and run.id != RUN
        ]
        if not others:
            return
        await stage.store.notifier.wait(stage.clock, float("inf"), since=rings)


async def _kill(tasks: set[asyncio.Task[Any]]) -> None:
    """What kill -9 does to the tasks of a process: nobody gets to finish anything."""
    tasks = tasks - {asyncio.current_task()}  # type: ignore[operator]
    while alive := {task for task in tasks if not task.done()}:
        for task in alive:
            task.cancel()
        await asyncio.wait(alive, timeout=0.001)
    for task in tasks:
        with suppress(asyncio.CancelledError):
            task.exception()


async def _ending(stage: Stage, calls: list[str], deaths: int) -> Ending:
    store, log = stage.store, stage.log
    held = await dump(store, listed=False)
    evidence = Evidence(ops=log.ops, dumps=[held], effects=log.effects)
    try:
        outcome = await stage.client.result(RUN, timeout=0)
    except RunCancelled as cancelled:
        outcome = Cancelled(cancelled.error)
    except RunFailed as failed:
        outcome = Failed(failed.error)
    except TimeoutError:
        outcome = None
    return Ending(
        outcome=outcome,
        runs={id: found.run for id, found in held.runs.items()},
        histories={id: found.events for id, found in held.runs.items()},
        effects=log.effects,
        calls=calls,
        deaths=deaths,
        violations=check(evidence),
        seen=stage.seen,
    )


class InPlace(ThreadPoolExecutor):
    """Runs what it is given at once, on the spot."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future tells it
            future.set_exception(error)
        return future
