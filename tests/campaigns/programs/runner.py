"""The runner: one case from its start until every run has ended, in virtual time.

Workers are processes that can die (`outlast.testing.crashable_process`). The n-th commit of theirs, or the n-th
call of the store, goes wrong as the case says; acts from outside come after so many commits, after
so many seconds, or when everything rests. What runs still wait for then is supplied: signals,
answers, a resume. A run that does not end after that is stuck.

All of it is on one event loop, and ids and jitter are drawn from the seed, so that a case on the
memory store goes the same way to the letter every time.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

import msgspec

import outlast
from outlast.client import Client
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.engine.runner import run_driver
from outlast.errors import Busy, Closed, NotFound, OutlastError, TryAgain, Unavailable
from outlast.model.asks import ask_id, asks_in
from outlast.model.commit import Commit, Committed, Creation
from outlast.model.ids import seeded
from outlast.model.query import RunQuery
from outlast.ports.clock import Clock, SteadyClock
from outlast.ports.store import Store
from outlast.stores.memory import MemoryStore
from outlast.testing.crashable_process import Crash, CrashableProcess, CrashingClock
from outlast.testing.scenario_result import EffectLedger as Executions
from outlast.testing.virtual_clock import VirtualClock
from outlast.testkit.simulation import InlineExecutor
from outlast.testkit.wrapped_store import WrappedStore
from tests.campaigns.programs.interpreter import (
    NOTHING,
    OTHER,
    ROOT,
    Stage,
    enter,
    program,
    queued_steps,
)
from tests.campaigns.programs.ledger import Begun, FinalRun, Ledger, Recorded, Told
from tests.campaigns.programs.program import LEASE, Act, Case, Child, Fault, Signal, every_node
from tests.campaigns.programs.transactions import Effect, KeepsEffects, of_worker, pretended

T = TypeVar("T")
MakeStore = Callable[[VirtualClock], Store]

RESTED = 6 * LEASE
"""Without a commit for so long, nothing more happens by itself: no sleep of a program is longer."""
LOOK_AGAIN = 2 * LEASE
ROUNDS = 5
"""How often what runs wait for is supplied in vain before they count as stuck."""
MOST_LEAPS = 5000
OFTEN = ResidencyPolicy(snapshot_after=2, growth=0)
REAL_SECONDS = 120
"""A case that takes longer than this hangs: it waits for something that is not on the clock."""
MICROSECOND = 1e-6
CLOCK_BACK = timedelta(hours=1)


class Hangs(Exception):
    """A case did not come to an end."""


@dataclass(frozen=True)
class Evidence:
    """All that is known of a case that has been run."""

    case: Case
    ledger: Ledger
    runs: dict[str, FinalRun]
    stuck: tuple[str, ...]


def new_clock() -> VirtualClock:
    """A clock for a case."""
    return VirtualClock(look_again_after=LOOK_AGAIN)


def in_memory(clock: VirtualClock) -> Store:
    """A new store in memory."""
    return MemoryStore(clock=SteadyClock(clock))


class ServerTime:
    """The time of a server: the clocks of the workers' machines are not its own."""

    def __init__(self, machine: VirtualClock) -> None:
        self._machine = machine
        self._begun = machine.now() - timedelta(seconds=machine.monotonic())

    def now(self) -> datetime:
        return self._begun + timedelta(seconds=self._machine.monotonic())

    def monotonic(self) -> float:
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)


def run_case(case: Case, seed: int = 0, make: MakeStore = in_memory) -> Evidence:
    """Run a case to its end."""
    chance = random.getstate()
    random.seed(seed)
    try:
        with seeded(seed), _settings(case):
            world = _World(case, make)
            return _loop().run_until_complete(asyncio.wait_for(world.run(), REAL_SECONDS))
    except TimeoutError:
        raise Hangs(f"it has not ended after {REAL_SECONDS} s") from None
    except KeyboardInterrupt as stop:
        if not stop.args:
            raise  # Ctrl-C
        raise Hangs(f"{stop!r} of a step has left the event loop") from None
    finally:
        random.setstate(chance)
        enter(None)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all cases: to make one for each takes as long as a small case."""
    return asyncio.new_event_loop()


def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Do something on the loop of all cases, before one begins."""
    return _loop().run_until_complete(work)


@contextmanager
def _settings(case: Case) -> Iterator[None]:
    """The engine as the case wants it."""
    before = run_driver.LINGER_TIME
    if case.evicts:
        run_driver.LINGER_TIME = timedelta(0)
    try:
        yield
    finally:
        run_driver.LINGER_TIME = before


class _World:
    def __init__(self, case: Case, make: MakeStore) -> None:
        self.case = case
        # A store that is used again keeps its clock, so that time never goes back in it.
        self.clock: VirtualClock = getattr(make, "clock", None) or new_clock()
        self._begun = self.clock.monotonic()
        self.ledger = Ledger(self.now)
        self.store = Witness(make(self.clock), self)
        self.client = Client(
            self.clock.watched(self.store),
            workflows=[program],
        )
        self.calls = self.commits = 0
        self._dirty = True
        """Whether a run may have begun or ended since it was last looked."""
        self.changed_at = 0.0
        self.busy_until = self.away_until = -1.0
        self._faults = list(case.faults)
        self._acts = list(case.acts)
        self._acting: set[asyncio.Task[None]] = set()
        self._executions = Executions()
        self._workers: list[Worker] = []
        self._values = iter(range(1, 1_000_000))
        self._started = False
        self._needs_other = any(isinstance(n, Child) and n.taken for n in every_node(case))

    async def run(self) -> Evidence:
        asyncio.get_running_loop().set_default_executor(InlineExecutor())
        enter(Stage(self.case, self.ledger))
        async with self.store:
            with self.clock.hold():
                try:
                    for _ in range(self.case.workers):
                        self._begin_worker()
                    stuck = await self._until_over()
                    runs = await self._final()
                finally:
                    self.ledger.closed = True
                    for task in self._acting:
                        task.cancel()
                    for worker in self._workers:
                        worker.die()
                        await worker.discard()
        return Evidence(self.case, self.ledger, runs, tuple(stuck))

    # -- time ---------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the case began."""
        return self.clock.monotonic() - self._begun

    async def _until_over(self) -> list[str]:
        rounds = known = quiet = 0
        open_runs: list[str] = []
        for _ in range(MOST_LEAPS):
            await self.clock.settle()
            self._replace_the_dead()
            self._act_when_due()
            while self._dirty:  # a server is read page by page: what began meanwhile may be missing
                self._dirty = False
                open_runs = await self._open_runs()
            if self._started and not open_runs and not self._acting:
                if not self._acts:
                    return []
                self._act(self._acts.pop(0))
                continue
            idle = self.now() - self.changed_at
            if idle > RESTED:
                if self._acts and self._started:
                    self._act(self._acts.pop(0))
                elif rounds == ROUNDS:
                    return open_runs or ["an act from outside has no answer"]
                else:
                    rounds = rounds + 1 if len(self.ledger.recorded) == known else 1
                    known = len(self.ledger.recorded)
                    await self._supply()
                self.changed_at = self.now()
                continue
            quiet = 0 if self.clock.jump() else quiet + 1
            if quiet > 1:  # and no worker has begun just now
                self.changed_at = -math.inf
        return [f"no end after {MOST_LEAPS} jumps", *await self._open_runs()]

    async def _open_runs(self) -> list[str]:
        return [
            f"{run.id} is {run.status}, {run.wait_kind}"
            async for run in self.store.inner.find_all(RunQuery())
            if not run.status.terminal
        ]

    def changed(self) -> None:
        """Something has become durable."""
        self._dirty = True
        self.changed_at = max(self.changed_at, self.now())

    # -- workers ------------------------------------------------------------------------------

    def _begin_worker(self) -> None:
        worker = Worker(self, f"worker {len(self._workers) + 1}", self._executions)
        self._workers.append(worker)
        app = outlast.App(
            worker.store,
            workflows=[program],
            steps=queued_steps(self.case),
            lease=LEASE,
            residency=OFTEN if self.case.snapshots else DEFAULT_RESIDENCY,
        )
        worker.app = app
        working = asyncio.create_task(self._work(worker, app))
        working.add_done_callback(self._worked)
        worker.attach(app, working)

    async def _work(self, worker: Worker, app: outlast.App) -> None:
        await _again(worker.clock.sleep, app.open)
        while not self._started:
            try:
                if self._needs_other:
                    await app.start(program(OTHER, 0, NOTHING), id=OTHER)
                await app.start(program(ROOT, 0, 0), id=ROOT)
            except TryAgain:
                await worker.clock.sleep(1)
                continue
            except Closed:
                return  # it was stopped before it could begin: the next worker does
            await worker.ensure_alive()
            self._started = True

    def _worked(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.ledger.problems.append(f"a worker could not begin: {task.exception()!r}")

    def _replace_the_dead(self) -> None:
        for worker in self._workers:
            if worker.dead and not worker.replaced:
                worker.replaced = True
                self._begin_worker()

    def next_fault(self, is_commit: bool) -> Fault | None:
        """What goes wrong with the call that a worker makes now."""
        for fault in self._faults:
            count = self.calls if fault.any_call else self.commits
            if fault.at <= count and (is_commit or fault.any_call):
                self._faults.remove(fault)
                self.ledger.faults.append((fault.kind, self.now(), fault.seconds))
                self.changed_at = self.now() + fault.seconds
                return fault
        return None

    # -- from outside -------------------------------------------------------------------------

    def _act_when_due(self) -> None:
        for act in list(self._acts):
            by_commits = act.commits is not None and act.commits <= self.commits
            by_time = act.seconds is not None and act.seconds <= self.now()
            if self._started and (by_commits or by_time):
                self._acts.remove(act)
                self._act(act)

    def _act(self, act: Act) -> None:
        run_id = self.ledger.runs[act.run % len(self.ledger.runs)]
        self._do(act.do, run_id, act.name, act.dedup)

    def _do(self, do: str, run_id: str, name: str = "", dedup: str | None = None) -> None:
        told = Told(
            tick=self.ledger.tick(),
            time=self.now(),
            do=do,
            run_id=run_id,
            name=name,
            value=next(self._values),
            dedup=dedup,
        )
        self.ledger.told.append(told)
        task = asyncio.create_task(self._doing(told))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _doing(self, told: Told) -> None:
        try:
            told.answer = await self._answer(told)
        except (OutlastError, TimeoutError) as error:
            told.error = f"{type(error).__name__}: {error}"
        told.done = self.ledger.tick()
        self.changed_at = self.now()

    async def _answer(self, told: Told) -> Any:
        client, run_id, value = self.client, told.run_id, told.value
        match told.do:
            case "signal":
                await client.get(run_id).signal(told.name, value, dedup=told.dedup)
            case "update":
                return await client.get(run_id).update("ask", value, dedup=told.dedup)
            case "cancel":
                await client.get(run_id).cancel()
            case "terminate":
                await client.get(run_id).terminate()
            case "pause":
                await client.get(run_id).pause()
            case "resume":
                await client.get(run_id).resume()
            case "answer":
                return await self._answer_ask(told)
            case "retry":
                await client.get(run_id).retry()
            case "fork":
                keys = [
                    one.key for one in self.ledger.recorded
                    if one.run_id == run_id and one.type == "step.started"
                ]  # fmt: skip
                if not keys:
                    raise NotFound("step", "any")
                await client.get(run_id).fork(keys[value % len(keys)], id=f"fork-{value}")
            case "delete":
                return await client.get(run_id).delete()
            case "reopen":
                await self._reopen()
        return None

    async def _answer_ask(self, told: Told) -> Any:
        """Answer the question that is named, or else the last that the run asks; what was asked."""
        asks = self.client.asks
        if "/" not in told.name:
            open_asks = await self.client.get(told.run_id).asks()
            if not open_asks:
                raise NotFound("ask", "any")
            told.name = open_asks[-1].id
        told.answer = (await asks.get(told.name)).data
        await asks.answer(told.name, told.value, by=str(told.value))
        return told.answer

    async def _reopen(self) -> None:
        """Stop the oldest worker in good order, and begin another."""
        living = [worker for worker in self._workers if not (worker.dead or worker.closing)]
        if living:
            worker = living[0]
            worker.closing = True
            assert worker.app is not None
            closing = asyncio.create_task(worker.app.close())
            while not (closing.done() or worker.dead):  # it may die while it stops
                await self.clock.sleep(1)
            if not worker.dead:
                worker.replaced = True
                self._begin_worker()

    async def _supply(self) -> None:
        """Give every run that rests what it may be waiting for."""
        names = sorted({node.name for node in every_node(self.case) if isinstance(node, Signal)})
        async for run in self.store.inner.find_all(RunQuery()):
            if run.status.terminal:
                continue
            if run.status == "paused":
                self._do("resume", run.id)
            for ask in asks_in(run.attributes):
                for _ in ("one person", "another one"):
                    self._do("answer", run.id, ask_id(run.id, ask.token))
            for name in names:
                self._do("signal", run.id, name)

    # -- the end ------------------------------------------------------------------------------

    async def _final(self) -> dict[str, FinalRun]:
        found = {}
        async for run in self.store.inner.find_all(RunQuery()):
            events = await self.store.inner.history(run.id)
            found[run.id] = FinalRun(
                id=run.id,
                uid=run.uid,
                status=str(run.status),
                wait_kind=run.wait_kind,
                parent=run.parent,
                error=run.error,
                result=None if run.result is None else msgspec.json.decode(run.result),
                sequences=tuple(event.sequence for event in events),
            )
        if isinstance(self.store.inner, KeepsEffects):
            self.ledger.effects += await self.store.inner.effects()
        return found


async def _again(
    pause: Callable[[float], Awaitable[None]], call: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    while True:
        try:
            return await call()
        except TryAgain:
            await pause(1)


# -- the store as it is seen ----------------------------------------------------------------------


class Witness(WrappedStore):
    """Around the store itself: puts on the ledger what has become durable, whoever wrote it."""

    def __init__(self, inner: Store, world: _World) -> None:
        super().__init__(inner)
        self._world = world

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        answer = await call()
        if name == "delete":
            self._world.changed()
        if name == "commit":
            commits: list[Commit] = list(args[0] if args else kwargs["commits"])
            for commit, outcome in zip(commits, answer, strict=True):  # type: ignore[call-overload]
                if isinstance(outcome, Committed) and not outcome.again:
                    self._note(commit, outcome)
        return answer

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        if isinstance(self.inner, KeepsEffects):
            return self.inner.transaction()
        return pretended(self, self._written)

    def _written(self, effects: Sequence[Effect]) -> None:
        if not self._world.ledger.closed:
            self._world.ledger.effects += effects

    def _note(self, commit: Commit, committed: Committed) -> None:
        world, ledger = self._world, self._world.ledger
        if ledger.closed:
            return
        world.changed()
        begun = [commit.run_id] if commit.create is not None else []
        for run_id in (*begun, *(start.run.id for start in commit.starts)):
            if run_id not in (OTHER, *ledger.runs):
                ledger.runs.append(run_id)
        tick, time = ledger.tick(), world.now()
        for start in commit.starts:
            ledger.children.append(Begun(committed.uid, start.run.id, start.run.uid))
        copied = commit.create is not None and (
            commit.creation is Creation.REPLACE or commit.hold is None
        )
        if commit.creation is Creation.REPLACE and commit.create is not None and not commit.force:
            end = (commit.run_id, commit.uid or "", "workflow.continued", "", b"{}", False, False)
            ledger.recorded.append(Recorded(tick, time, *end))
        for event in commit.events:
            ledger.recorded.append(
                Recorded(
                    tick=tick,
                    time=time,
                    run_id=commit.run_id,
                    uid=committed.uid,
                    type=str(event.type),
                    key=event.step_name,
                    data=bytes(event.data),
                    copied=copied,
                    forced=commit.force,
                )
            )


class _Clock(CrashingClock):
    """The clock of a worker: the present is that of its store, whatever the machine says."""

    def __init__(self, process: CrashableProcess, clock: VirtualClock, present: Clock) -> None:
        super().__init__(process, clock)
        self.now = present.now  # type: ignore[method-assign]


class Worker(CrashableProcess):
    """A worker: its calls of the store go wrong as the case says."""

    def __init__(self, world: _World, name: str, executions: Executions) -> None:
        self._world = world
        self.replaced = self.closing = False
        self.app: outlast.App | None = None
        self.fault = ""
        """What goes wrong with the call that is about to be made."""
        self._still_until = -1.0
        super().__init__(world.store, world.clock, executions, name=name)
        self.clock = self.store.clock = _Clock(self, world.clock, world.store.clock)

    def connect(self, store: Store) -> Store:
        return Reach(self, self._world)

    def next_crash(self, what: str) -> Crash | None:
        world, clock = self._world, self._world.clock
        is_commit = what.startswith("commit")
        world.calls += 1
        world.commits += is_commit
        fault = world.next_fault(is_commit)
        self.fault = fault.kind if fault is not None else ""
        if fault is not None:
            until = world.now() + fault.seconds
            match fault.kind:
                case "dies before":
                    return Crash.BEFORE
                case "dies after":
                    return Crash.AFTER
                case "answer lost":
                    return Crash.LOST_ANSWER
                case "busy":
                    world.busy_until = until
                case "away":
                    world.away_until = until
                case "stands still":
                    self._still_until = clock.monotonic() + fault.seconds
                case "clock back":
                    clock.set(clock.now() - CLOCK_BACK)
        return None

    async def ensure_alive(self) -> None:
        await super().ensure_alive()
        clock = self._world.clock
        while not self.dead and self._still_until - clock.monotonic() > MICROSECOND:
            await clock.sleep(self._still_until - clock.monotonic())
            await super().ensure_alive()

    async def stand_still(self) -> None:
        """Make a call later. One that dies meanwhile never makes it, and holds up no clock."""
        clock = self._world.clock
        while not self.dead and self._still_until - clock.monotonic() > MICROSECOND:
            await clock.sleep(self._still_until - clock.monotonic())
        if self.dead:
            await clock.sleep(math.inf)


class Reach(WrappedStore):
    """What lies between a worker and the store."""

    def __init__(self, worker: Worker, world: _World) -> None:
        super().__init__(world.store)
        self._worker = worker
        self._world = world

    async def around(
        self,
        name: str,
        call: Callable[[], Awaitable[T]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> T:
        world = self._world
        if self._worker.fault == "stands still":
            await self._worker.stand_still()
        now = world.now()
        if now < world.away_until:
            raise Unavailable(f"{name}: the store is away")
        if name == "commit" and now < world.busy_until:
            commits = args[0] if args else kwargs["commits"]
            return [Busy("the row is locked") for _ in commits]  # type: ignore[return-value]
        return await call()

    def transaction(self) -> AbstractAsyncContextManager[tuple[Any, Store]]:
        world = self._world
        return of_worker(
            self._worker,
            world.store,
            is_away=lambda: world.now() < world.away_until,
            is_busy=lambda: world.now() < world.busy_until,
        )
