"""Engine: starts runs, claims runnable ones, drives them, and renews its leases.

When an engine crashes, the store hands its runs to another one after the lease has expired; attempts in flight are
counted as interrupted and made again. An engine does not claim runs whose code it lacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import timedelta

import msgspec

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.operations.step import LeaseLossReport, StepCall
from outlast.engine.replay.commit_builder import NewRun, next_commit
from outlast.engine.replay.completion import end_of
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.engine.runner.claimer import Claimer
from outlast.engine.runner.driver_pool import Drain, DriverPool
from outlast.engine.runner.group_commit import CommitBatcher, Observer, Observers, UnknownChildren
from outlast.engine.runner.history_loader import load_replay_log
from outlast.engine.runner.leases import LeaseLossReporter, Leases
from outlast.engine.runner.loop_thread import LoopMonitor
from outlast.engine.runner.stuck_runs import Rejections, Watchdog
from outlast.engine.steps.step_executor import StepExecutor, in_threads
from outlast.errors import TryAgain
from outlast.model.claim import Claim, ClaimOnCreate
from outlast.model.commit import Creation
from outlast.model.ids import new_id
from outlast.model.payloads import WorkflowContinued
from outlast.model.run import Run, Status
from outlast.ports.clock import LeapingClock, ServerClock
from outlast.ports.codec import Codec
from outlast.ports.store import Store
from outlast.ports.store_methods import LOCK_PATIENCE_S

LEASE_S = 30.0
MAX_RUNS = 1000
MAX_LOGGED = 20

log = logging.getLogger("outlast.engine")


class Engine:
    """Runs workflows in this process on any store."""

    def __init__(
        self,
        store: Store,
        workflows: Iterable[WorkflowDefinition],
        *,
        codec: Codec,
        owner: str = "engine",
        lease: float = LEASE_S,
        concurrency: int = MAX_RUNS,
        observers: Iterable[Observer] = (),
        threads: Executor | None = None,
        residency: ResidencyPolicy = DEFAULT_RESIDENCY,
        strict_replay: bool = False,
        park_on: tuple[type[Exception], ...] | None = None,
    ) -> None:
        self.workflows = {workflow.name: workflow for workflow in workflows}
        # Unique, because a restarted process must not be mistaken for the old one.
        self.owner = f"{owner}-{new_id()}"
        self._store = store
        self._clock = store.clock
        self._codec = codec
        self._lease = lease
        self._residency = residency
        self._park_on = park_on
        # A call that takes longer would outlast the lease that it works under.
        self._timeout_s = timeout_s = lease / 3
        observer = Observers((UnknownChildren(self.workflows), *observers))
        self.batcher = CommitBatcher(store, timeout=timeout_s, observer=observer)
        executor = StepExecutor(
            codec, store.clock, grace=0.8 * timeout_s, threads=threads, inherited_files=store.inherited_files
        )  # fmt: skip
        self.leases = Leases(store, lease)
        self.lease_losses = LeaseLossReporter(store, timeout_s)
        self.rejections = Rejections(
            store, self.workflows, self.batcher, self.owner, timeout_s=timeout_s
        )
        self.drivers = DriverPool(
            store,
            self.batcher,
            executor,
            self.leases,
            self.lease_losses,
            self.rejections,
            timeout_s=timeout_s,
            residency=residency,
        )
        self.claimer = Claimer(
            store,
            self.workflows,
            self.batcher,
            self.leases,
            self.drivers,
            self.rejections,
            codec=codec,
            owner=self.owner,
            lease=lease,
            concurrency=concurrency,
            residency=residency,
            strict_replay=strict_replay,
            park_on=park_on,
        )
        self.watchdog = Watchdog(store.clock, self.drivers, self.claimer)
        self.leases.on_renewed = self.watchdog.check
        self._loop_monitor: LoopMonitor | None = None
        self._end_listening: Callable[[], None] = lambda: None

    # -- life ---------------------------------------------------------------------------------

    def can_continue(self, run: Run) -> bool:
        """Whether this process may continue a parked run: its code has not tried it."""
        known = self.claimer.is_open and run.workflow in self.workflows
        return known and self.rejections.code not in run.rejections

    async def open(self) -> None:
        """Start to claim runnable runs and to renew leases."""
        if not self.claimer.is_open:
            if isinstance(self._clock, ServerClock):
                asked = self._clock.monotonic()
                self._clock.heard(await self._store.now(timeout=self._timeout_s), asked=asked)
            self.drivers.is_stopping = False
            self.claimer.open()
            self._end_listening = self._store.notifier.listen(self.drivers.on_wakeup)
            await self.leases.open()
            # With virtual time a thread would make tests non-deterministic.
            if not isinstance(self._clock, LeapingClock):
                self._loop_monitor = LoopMonitor()
                self._loop_monitor.start()

    async def drain(self, limit: Drain) -> None:
        """Claim nothing more, and let running steps end. Leases are renewed meanwhile."""
        await self.claimer.close()
        await self.drivers.drain(limit)

    async def close(self) -> None:
        """Stop: steps in flight are cut off, that is recorded, and the runs are handed back."""
        if self._loop_monitor is not None:
            self._loop_monitor.stop()
        self._end_listening()
        await self.claimer.close()
        self.drivers.is_closing = True
        await self.leases.close()
        await self.drivers.close()
        if left := list(in_threads.values()):
            log.warning(
                "these plain steps still run in threads, which cannot be stopped; they end with this process, and "
                "other processes continue their runs: %s", ", ".join(left[:MAX_LOGGED]),
            )  # fmt: skip

    # -- starting -----------------------------------------------------------------------------

    async def start(self, new: NewRun) -> None:
        """Start a run here: its start, its first intents and its claim are one commit. A process that closes waits for
        that, and hands the run back."""
        over = asyncio.get_running_loop().create_future()
        self.drivers.starts.add(over)
        try:
            await self._start(new)
        finally:
            self.drivers.starts.discard(over)
            over.set_result(None)

    async def _start(self, new: NewRun) -> None:
        assert new.definition is not None, "a run starts where its code is"
        run = new.record(Status.RUNNING)
        execution = Execution(
            new.definition,
            run_id=new.id,
            uid=run.uid,
            codec=self._codec,
            replay_log=await load_replay_log(
                self._store, run, timeout_s=self._timeout_s, residency=self._residency
            ),
            park_on=self._park_on,
        )
        asked = self._clock.monotonic()
        now = self._clock.now()
        until = now + timedelta(seconds=self._lease)
        claim = Claim(owner=self.owner, token=0, claimed_at=now, expires_at=until)
        try:
            execution.deliver(new.started(), self._clock.now())
            end = end_of(execution)
            rests = end is not None and not isinstance(end, WorkflowContinued)
            commit = next_commit(execution, run, claim, end, sequence=0, seen=0, rests=rests)
            commit = msgspec.structs.replace(
                commit,
                expected=None,
                create=run,
                creation=new.creation,
                force=new.creation is Creation.REPLACE,
                hold=ClaimOnCreate(self.owner, self._lease),
                sends=(*commit.sends, *new.sends),
            )
            committed = await self.batcher.commit(commit, patience=LOCK_PATIENCE_S)
        except BaseException:
            # It may have been written, and then needs an owner, for which no step has started.
            self._report_not_started(
                execution, msgspec.structs.replace(claim, run_id=new.id, uid=run.uid)
            )
            execution.evict()
            self._store.notifier.wake()
            raise
        claim = msgspec.structs.replace(
            claim, token=committed.token, run_id=new.id, uid=committed.uid
        )
        if commit.change is not None:  # what it has published and asked by now
            run = msgspec.structs.replace(run, **commit.change.values())
        run = msgspec.structs.replace(
            run, sequence=committed.sequence, revision=committed.revision, inbox=len(new.sends)
        )
        if rests:
            execution.evict()
        elif committed.again and not await self._still_holds(claim, asked):
            self._report_not_started(execution, claim)
            execution.evict()
            self._store.notifier.wake()
        else:
            self.drivers.begin(execution, run, claim, self.leases.hold(claim, asked=asked))

    def _report_not_started(self, execution: Execution, claim: Claim) -> None:
        """Report that the steps of a run whose start is not confirmed have not started here: the next owner counts no
        interruption, and an at_most_once step does not fail."""
        calls = {
            call.key: call.attempt for call in execution.launches if isinstance(call, StepCall)
        }
        report = LeaseLossReport(life=claim.uid, attempts={}, not_started=calls)
        self.lease_losses.report(claim, report)

    async def _still_holds(self, claim: Claim, asked: float) -> bool:
        """Whether this engine has the claim that it requested in a commit whose first answer was lost: the token of a
        later answer belongs to the process that has the run now."""
        if self._clock.monotonic() - asked >= self._lease:
            return False  # if this engine has claimed it again meanwhile, that is another claim
        try:
            run = await self._store.find_one(claim.run_id, timeout=self._timeout_s)
        except (TryAgain, OSError):
            return False  # it is claimed when its lease has expired
        return run is not None and run.owner == self.owner and run.token == claim.token
