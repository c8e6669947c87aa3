"""Claimer: claims runnable runs whose code this process has, while there is room.

The store hands out runs that no process holds: runs that are due, that got a message, and those whose owner crashed,
when its lease expires.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.commit_builder import QUEUED
from outlast.engine.replay.error_text import describe
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import ResidencyPolicy
from outlast.engine.runner.admission import turned_away
from outlast.engine.runner.driver_pool import DriverPool
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.engine.runner.history_loader import is_short, load_replay_log
from outlast.engine.runner.leases import Lease, Leases
from outlast.engine.runner.poll_loop import NextPoll, PollLoop
from outlast.engine.runner.stuck_runs import Failures, Rejections
from outlast.errors import (
    Fenced,
    NotFound,
    OutlastError,
    RunClosed,
    StoreFault,
    TryAgain,
    Undecodable,
)
from outlast.model.claim import ClaimedRun
from outlast.model.commit_rules import WakeupKind
from outlast.model.event import Event
from outlast.model.query import RunQuery
from outlast.model.run import Run
from outlast.ports.clock import Backoff, hear
from outlast.ports.codec import Codec
from outlast.ports.store import Store

JITTER = 0.2
MAX_CLAIMED_AT_ONCE = 100
MAX_RESUMED_AT_ONCE = 16
"""Histories that are read at the same time, to share round trips."""

RETRY_REJECTED_S = 10.0
"""How often runs that this code has rejected are claimed again."""
PARKED_INTERVAL_S = 300.0
"""How often parked runs are searched that this code has not tried."""
RESUME_TRIES = 4
"""Tries of a takeover that fails because of the store."""
TRANSIENT = (TryAgain, StoreFault, OSError)

log = logging.getLogger("outlast.engine")


class Claimer:
    """Claims runs for one engine, and passes them to its driver pool."""

    def __init__(
        self,
        store: Store,
        workflows: Mapping[str, WorkflowDefinition],
        batcher: CommitBatcher,
        leases: Leases,
        drivers: DriverPool,
        rejections: Rejections,
        *,
        codec: Codec,
        owner: str,
        lease: float,
        concurrency: int,
        residency: ResidencyPolicy,
        strict_replay: bool = False,
        park_on: tuple[type[Exception], ...] | None = None,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._workflows = workflows
        self._batcher = batcher
        self._leases = leases
        self._drivers = drivers
        self._rejections = rejections
        self._codec = codec
        self._owner = owner
        self._random = random.Random(owner)
        self._lease = lease
        self._timeout_s = lease / 3  # a call that takes longer would cost the lease
        self.concurrency = concurrency
        self._residency = residency
        self._strict_replay = strict_replay
        self._park_on = park_on
        self._poll_loop = PollLoop(store, "claiming", timeout_s=self._timeout_s, log=log)
        self._retry_rejected_at = self._parked_at = self._clock.monotonic()
        self.on_ticket: Callable[[], Awaitable[None]] | None = None
        """Called when a run was put into a queue to wait for its admission."""
        self.only: str | None = None
        """The id of the run which, with its descendants, is all that this process claims."""
        self.failing = Failures(self._clock, lease)
        """The runs that could not be taken over because of the store."""

    @property
    def error(self) -> BaseException | None:
        """Why the last poll failed."""
        return self._poll_loop.error

    @property
    def is_open(self) -> bool:
        """Whether it polls for work."""
        return self._poll_loop.is_running

    @property
    def room(self) -> int:
        """How many more runs this process may drive."""
        return self.concurrency - len(self._drivers)

    def open(self) -> None:
        """Start to poll for work."""
        self._poll_loop.start(self._poll)

    async def close(self) -> None:
        """Stop. Runs that a poll in flight still claims are released."""
        await self._poll_loop.stop()

    def look_for_parked(self) -> None:
        """Claim parked runs soon that this code has not tried."""
        self._parked_at = self._clock.monotonic()
        self._store.notifier.wake_local(WakeupKind.RUNS)

    async def claim(
        self,
        limit: int = MAX_CLAIMED_AT_ONCE,
        *,
        run_ids: Collection[str] | None = None,
        rejected: bool = False,
    ) -> int:
        """Claim and take over runnable runs, or those of `run_ids`; how many. With `rejected` also those that this code
        has rejected: they are tried again if no live worker has other code."""
        asked = self._clock.monotonic()
        code = None if rejected else self._rejections.code
        with self._drivers.adopting():
            claimed = await self._poll_loop.take(
                lambda: self._store.claim_runs(
                    self._owner,
                    self._lease,
                    limit=limit,
                    workflows=self._workflows,
                    run_ids=run_ids,
                    code=code,
                    timeout=self._timeout_s,
                ),
                self._give_back,
            )
            for one in claimed[:1]:
                hear(self._clock, one.claim.expires_at, self._lease, asked=asked)
            # Held from now on: reading many histories may take longer than a lease.
            leases = [self._leases.hold(one.claim, asked=asked) for one in claimed]
            left = {
                lease: one
                for lease, one in zip(leases, claimed, strict=True)
                if not self._drivers.adopt(one.run, one.claim, lease)
            }
        try:
            known = await self._histories([one.run for one in left.values()])
            while left:
                some = list(left.items())[:MAX_RESUMED_AT_ONCE]
                slow = []
                for lease, one in some:
                    history = known.get(one.run.id)
                    if history is None or one.run.wait_kind == QUEUED:
                        slow.append((one, lease, history))
                    else:
                        # It reads nothing from the store: a task would only cost time.
                        await self._take_over(one, lease, history)
                await asyncio.gather(*(self._take_over(*what) for what in slow))
                for lease, _ in some:
                    del left[lease]
        finally:
            if left:  # cancelled in between: this process will not drive these
                claims = [
                    lease.claim
                    for lease, one in left.items()
                    if one.run.id not in self._drivers and self._leases.drop(lease)
                ]
                await self._store.release(claims, timeout=self._timeout_s)
        return len(claimed)

    async def _give_back(self, claimed: Sequence[ClaimedRun]) -> None:
        await self._store.release([one.claim for one in claimed], timeout=self._timeout_s)

    async def _histories(self, runs: Sequence[Run]) -> dict[str, list[Event]]:
        """The short histories, read in one call; the others are read one by one."""
        ids = [run.id for run in runs if is_short(run, self._residency)]
        if len(ids) < 2:
            return {}
        try:
            return await self._store.histories(ids, timeout=self._timeout_s)
        except (OutlastError, OSError) as error:
            log.debug("histories are read one by one: %s", error)
            return {}

    async def _take_over(
        self, claimed: ClaimedRun, lease: Lease, history: Sequence[Event] | None
    ) -> None:
        run = claimed.run
        try:
            backoff = Backoff(0.1, 1.6, factor=4)
            for tries in range(1, RESUME_TRIES + 1):
                if not self._leases.keeps(lease):
                    return
                try:
                    await self._resume(claimed, lease, history)
                    self.failing.end(run.id)
                    return
                except TRANSIENT as error:
                    if tries == RESUME_TRIES:
                        raise
                    log.warning("taking over run %s failed, trying again: %r", run.id, error)
                await backoff.wait(self._clock)
                history = None
        except (Fenced, RunClosed, NotFound) as lost:
            self._leases.drop(lease)
            log.info("run %s is owned by another process, or ended: %s", run.id, lost)
        except Exception as error:  # noqa: BLE001 - one run must not delay the others
            # The store hands the run out again when its lease expires.
            self._leases.drop(lease)
            self._note_failure(run, error)

    def _note_failure(self, run: Run, error: Exception) -> None:
        times = self.failing.add(run.id, describe(error))
        log.error(
            "run %s could not be taken over (%d times in a row): %r. It is tried again when its lease expires",
            run.id, times, error,
        )  # fmt: skip

    async def _resume(
        self, claimed: ClaimedRun, lease: Lease, history: Sequence[Event] | None
    ) -> None:
        run, claim = claimed.run, claimed.claim
        rejections = self._rejections
        if not run.may_try(rejections.code):
            codes = run.rejections
            if await rejections.untried(run.workflow, codes):
                self._leases.drop(lease)
                await self._store.release([claim], timeout=self._timeout_s)
                return
        try:
            await self._replay(claimed, lease, history)
        except (Fenced, RunClosed, NotFound):
            raise
        except Exception as problem:
            if isinstance(problem, TRANSIENT) and not isinstance(problem, Undecodable):
                raise  # an error of the store says nothing about the code
            await rejections.reject(run, claim, problem)
            self._leases.drop(lease)

    async def _replay(
        self, claimed: ClaimedRun, lease: Lease, history: Sequence[Event] | None
    ) -> None:
        run, claim = claimed.run, claimed.claim
        workflow = self._workflows[run.workflow]
        replay_log = await load_replay_log(
            self._store, run, history, timeout_s=self._timeout_s, residency=self._residency
        )
        newest = max((event.token for event in replay_log.events), default=0)
        if newest > claim.token:  # the read was late: this is the history of a later owner, or life
            raise Fenced(claim.subject, token=claim.token, current=newest)
        waits = await turned_away(
            self._store, replay_log.events, run, claim, timeout_s=self._timeout_s
        )
        if waits is not None:
            await self._batcher.commit(waits, patience=self._timeout_s)
            self._leases.drop(lease)
            if self.on_ticket is not None:
                await self.on_ticket()
            return
        execution = Execution(
            workflow, run_id=run.id, uid=run.uid, codec=self._codec, replay_log=replay_log,
            is_strict=self._strict_replay, park_on=self._park_on,
        )  # fmt: skip
        try:
            execution.replay(replay_log.events)
        except BaseException:
            execution.evict()
            raise
        self._drivers.begin(execution, run, claim, lease, is_resumed=True)

    async def _poll(self) -> NextPoll | None:
        room = min(self.room, MAX_CLAIMED_AT_ONCE)
        self._drivers.is_full = room <= 0
        polled_at = self._clock.now()
        claimed = await self._claim(room) if room > 0 else 0
        if claimed and claimed == room:
            return None
        due = await self._store.next_runnable_at(timeout=self._timeout_s)
        self._drivers.runs_wait_for_room = (
            self._drivers.is_full and due is not None and due <= polled_at
        )
        jitter = self._random.uniform(1 - JITTER, 1 + JITTER)
        pause_s = self._poll_loop.pause_until(due, polled_at=polled_at, jitter=jitter)
        return NextPoll(pause_s, WakeupKind.RUNS)

    async def _claim(self, room: int) -> int:
        """Claim due runs. From time to time also runs that this code has rejected, in case no worker with other code is
        left, and parked runs."""
        if self.only is not None:
            tree = await self._runnable_tree(self.only)
            return await self.claim(room, run_ids=tree) if tree else 0
        now = self._clock.monotonic()
        if now >= self._parked_at:
            self._parked_at = now + PARKED_INTERVAL_S
            parked = await self._rejections.parked_for_others(room)
            if parked:
                if len(parked) == room:
                    self._parked_at = now
                return await self.claim(room, run_ids=parked)
        if now >= self._retry_rejected_at:
            self._retry_rejected_at = now + RETRY_REJECTED_S * self._random.uniform(
                1 - JITTER, 1 + JITTER
            )
            return await self.claim(room, rejected=True)
        return await self.claim(room)

    async def _runnable_tree(self, root: str) -> list[str]:
        """Which of a run and its descendants can be claimed now."""
        now = await self._store.now(timeout=self._timeout_s)
        found, todo = [], [root]
        while todo:
            run = await self._store.find_one(todo.pop(), timeout=self._timeout_s)
            if run is None or run.status.terminal:
                continue
            is_due = run.runnable_at is not None and run.runnable_at <= now
            is_free = run.claimed_until is None or run.claimed_until <= now
            if is_due and is_free and run.id not in self._drivers:
                found.append(run.id)
            todo += [child.id async for child in self._store.find_all(RunQuery(parent=run.id))]
        return found
