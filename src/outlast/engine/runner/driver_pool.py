"""DriverPool: the run drivers of this process, one for each claimed run. Drain: the time limit of a graceful stop."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.engine.runner.leases import Lease, LeaseLossReporter, Leases
from outlast.engine.runner.run_driver import RunDriver
from outlast.engine.runner.stuck_runs import Failures, Rejections
from outlast.engine.steps.step_executor import StepExecutor
from outlast.errors import OutlastError
from outlast.model.claim import Claim
from outlast.model.commit_rules import WakeupKind
from outlast.model.run import Run
from outlast.ports.clock import Clock, LeapingClock
from outlast.ports.store import Store

FIRST_DROP_PAUSE_S, DROP_BACKOFF = 0.1, 4
"""How long the claim of a run that was dropped because of an error is kept, at first; and how many times longer each
next time, up to a lease."""

MAX_WOKEN_AT_ONCE = 100
"""At a wake-up that names no runs, up to this many drivers read their inboxes. More of them read when their leases are
renewed."""

log = logging.getLogger("outlast.engine")


class DriverPool:
    """One driver and its task for each run; a newer claim of a run supersedes the older one."""

    def __init__(
        self,
        store: Store,
        batcher: CommitBatcher,
        executor: StepExecutor,
        leases: Leases,
        lease_losses: LeaseLossReporter,
        rejections: Rejections,
        *,
        timeout_s: float,
        residency: ResidencyPolicy = DEFAULT_RESIDENCY,
    ) -> None:
        self._store = store
        self._batcher = batcher
        self._executor = executor
        self._leases = leases
        self._lease_losses = lease_losses
        self._rejections = rejections
        self._timeout_s = timeout_s
        self._residency = residency
        self._drivers: dict[str, RunDriver] = {}
        self._tasks: dict[str, asyncio.Task[Run | None]] = {}
        self.dropped = Failures(store.clock, 3 * timeout_s)
        """The runs that were dropped because of an error."""
        self._releasing: dict[asyncio.Task[None], Claim] = {}
        self._adoptions = 0
        self._superseded: list[tuple[RunDriver, Lease]] = []
        self.starts: set[asyncio.Future[None]] = set()
        """The runs that are being started here: each gets a driver when its start is durable."""
        self.is_stopping = False
        """Whether this process is stopping or has stopped: a run that gets a driver now is handed back."""
        self.is_closing = False
        """Whether this process is closing: lost claims are not reported."""
        self.is_full = False
        """Whether there was no room for another run at the last poll."""
        self.runs_wait_for_room = False
        """Whether runs are due that this process has no room for."""

    def __len__(self) -> int:
        return len(self._drivers)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._drivers

    async def drain(self, limit: Drain) -> None:
        """Start no further step, and hand back each run when its running steps have ended."""
        self.is_stopping = True
        for driver in self._drivers.values():
            driver.stop()
        if self._tasks or self.starts:
            await limit.wait_for(self.settled())

    async def close(self) -> None:
        """Cut off what is in flight and record that; after a timeout give up. Then release the remaining claims."""
        self.is_closing = self.is_stopping = True
        if self.starts:
            await asyncio.wait(self.starts, timeout=self._timeout_s)
        for driver in self._drivers.values():
            driver.stop_now()
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=self._timeout_s)
        claims = [driver.claim for driver in self._drivers.values()]
        claims += self._releasing.values()
        for releasing in list(self._releasing):
            releasing.cancel()
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._batcher.close(self._timeout_s)
        await self._lease_losses.close()
        if claims:
            await self._store.release(claims, timeout=self._timeout_s)
        self.is_closing = False

    async def settled(self) -> None:
        """Return when this process drives no run any more, and starts none."""
        while self._tasks or self.starts:
            waiting: list[asyncio.Future[Any]] = [*self._tasks.values(), *self.starts]
            await asyncio.wait(waiting)

    # -- one run ------------------------------------------------------------------------------

    def begin(
        self,
        execution: Execution,
        run: Run,
        claim: Claim,
        lease: Lease,
        *,
        is_resumed: bool = False,
    ) -> None:
        """Drive a run whose code is where its history ends."""
        present = self._drivers.get(run.id)
        if present is not None and present.claim.token > claim.token:
            execution.evict()  # the answer took so long that this process has claimed the run again
            self._leases.drop(lease)
            return
        if not self._leases.keeps(lease):
            execution.evict()  # lost meanwhile
            return
        if present is not None:
            # Its claim is superseded: it could execute steps, but not record them.
            present.lost_claim = True
            self._tasks[run.id].cancel()
        driver = RunDriver(
            self._store,
            self._batcher,
            self._executor,
            self._rejections,
            execution,
            run,
            claim,
            lease,
            timeout_s=self._timeout_s,
            is_resumed=is_resumed,
            residency=self._residency,
        )
        task = asyncio.create_task(driver.run(), name=f"run {run.id}")
        self._drivers[run.id] = driver
        self._tasks[run.id] = task
        self._attach_lease(driver, lease)
        if not self._leases.keeps(lease):
            task.cancel()  # lost a moment ago, before its callbacks were attached
        if self.is_stopping:
            driver.stop()
        driver.may_linger = self._may_linger
        driver.in_flight.lease_held = self._leases.held_by(driver)
        task.add_done_callback(lambda task: self._on_done(run.id, driver, task))
        # A task that is cancelled before it has started runs no ``finally``.
        task.add_done_callback(lambda _: execution.evict())

    def adopt(self, run: Run, claim: Claim, lease: Lease) -> bool:
        """A run was claimed that is driven here: its lease had expired, and this process claimed it first. Whether its
        driver continues under the new claim."""
        driver = self._drivers.get(run.id)
        if driver is None or not driver.adopt(run, claim):
            return False
        self._leases.drop(driver.lease)
        driver.lease = lease
        self._attach_lease(driver, lease)
        return True

    @contextmanager
    def adopting(self) -> Iterator[None]:
        """Claim runs, and let their drivers adopt the claims, within this context. A driver whose claim is superseded
        meanwhile may be the one that adopts the newer claim; it is lost only if it does not."""
        self._adoptions += 1
        try:
            yield
        finally:
            self._adoptions -= 1
            if self._superseded and not self._adoptions:
                superseded, self._superseded = self._superseded, []
                for driver, lease in superseded:
                    self._lose(driver, lease)

    def _attach_lease(self, driver: RunDriver, lease: Lease) -> None:
        lease.lost, lease.renewed = partial(self._lose, driver, lease), driver.wake
        lease.doubted = partial(self._on_doubt, driver)

    def _on_doubt(self, driver: RunDriver) -> None:
        driver.on_lease_doubt()
        self._store.notifier.wake_local(
            WakeupKind.RUNS
        )  # it may be claimed again, here or elsewhere

    def _may_linger(self) -> bool:
        return not self.runs_wait_for_room

    def _lose(self, driver: RunDriver, lease: Lease) -> None:
        if driver.lease is not lease or self._drivers.get(driver.claim.run_id) is not driver:
            return  # it has a newer lease, or has ended
        if self._adoptions:
            lease.confirmed = -math.inf  # no step starts
            driver.on_lease_doubt()
            self._superseded.append((driver, lease))
            return
        driver.lost_claim = True
        self._tasks[driver.claim.run_id].cancel()

    def _on_done(self, run_id: str, driver: RunDriver, task: asyncio.Task[Run | None]) -> None:
        self._leases.drop(driver.lease)
        if self._drivers.get(run_id) is driver:
            del self._drivers[run_id], self._tasks[run_id]
        if driver.lost_claim and not self.is_closing:
            self._lease_losses.report(driver.claim, driver.in_flight.losses())
        if not task.cancelled() and task.exception() is not None:
            log.error("run %s is dropped, and claimed again: %r", run_id, task.exception())
            times = self.dropped.add(run_id, repr(task.exception()))
            if not self.is_closing:
                releasing = asyncio.create_task(self._release_later(driver, times - 1))
                self._releasing[releasing] = driver.claim
                releasing.add_done_callback(self._releasing.pop)
        elif driver.is_finished:
            self.dropped.end(run_id)
        # A run that ended normally leaves nothing to claim: a poll for each would cost one per run.
        if self.is_full or not driver.is_finished:
            self._store.notifier.wake_local(WakeupKind.RUNS)

    def stalled(self) -> dict[str, list[str]]:
        """The runs with open operations that this process should execute and does not, and their keys."""
        return {id: keys for id, driver in self._drivers.items() if (keys := driver.stalled())}

    async def _release_later(self, driver: RunDriver, drops: int) -> None:
        """Release the claim of a run that was dropped because of an error, later each time: the next owner may meet
        the same error."""
        await self._lease_losses.report_now(driver.claim, driver.in_flight.losses())
        pause = min(FIRST_DROP_PAUSE_S * DROP_BACKOFF**drops, 3 * self._timeout_s)
        await self._store.clock.sleep(pause)
        with suppress(OutlastError, OSError):  # otherwise it can be claimed when its lease expires
            await self._store.release([driver.claim], timeout=self._timeout_s)

    def wake(self, run_id: str) -> None:
        """A message was sent to a run: if it is driven here, its driver reads the inbox."""
        driver = self._drivers.get(run_id)
        if driver is not None:
            driver.wake()

    def on_wakeup(self, run_ids: Collection[str] | None) -> None:
        """Messages were sent to these runs, or to unknown ones."""
        if run_ids is None:
            run_ids = list(self._drivers) if len(self._drivers) <= MAX_WOKEN_AT_ONCE else ()
        for run_id in run_ids:
            self.wake(run_id)

    def drop(self, run_id: str) -> None:
        """A run was terminated or deleted: if it is driven here, end its driver."""
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()

    def ending(self, run_id: str) -> asyncio.Future[Run | None] | None:
        """A future that is done when the run is no longer driven here, with its record if it has ended; None if it is
        not driven here."""
        return self._tasks.get(run_id)


EMBEDDED_DRAIN_S = 5.0
"""The default for an app inside another program."""


class Drain:
    """The time limit of a graceful stop, which can be cut short."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """End the time limit now."""
        self._hurry.set()

    async def wait_for(self, end: Coroutine[Any, Any, None]) -> None:
        """Return when `end` does, or when the time limit is over."""
        # Of the test clocks, only a leaping one is sure to reach that moment.
        sleep = self._clock.sleep if isinstance(self._clock, LeapingClock) else asyncio.sleep
        parts = (end, self._hurry.wait(), sleep(self._seconds))
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(one) for one in parts]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
