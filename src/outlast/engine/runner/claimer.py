"""Claimer: takes over runs that can go on and whose code is here, for as long as there is room.

What nobody drives is handed out by the store: runs that are due, that were sent something, and those
whose engine has died, when its lease ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime

from outlast.engine.definitions.definition import WorkflowDefinition
from outlast.engine.replay.error_text import describe
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import ResidencyPolicy
from outlast.engine.runner.admission import QUEUED, turned_away
from outlast.engine.runner.driver_pool import DriverPool
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.engine.runner.history_loader import is_short, load_replay_log
from outlast.engine.runner.leases import Lease, Leases, raise_if_cancelled
from outlast.engine.runner.poll_loop import PollLoop
from outlast.engine.runner.rejections import Failures, Rejections
from outlast.errors import (
    Closed,
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
from outlast.model.run import Run
from outlast.ports.clock import hear, look_again_after
from outlast.ports.codec import Codec
from outlast.ports.notifier import hears_all
from outlast.ports.store import Store

IDLE_SECONDS = 1.0
SHORTEST_PAUSE = 0.001
LISTENING_SECONDS = 5.0
"""How often to look for work without a wake-up: less often where the notifier hears other processes."""
JITTER = 0.2
CLAIM_AT_ONCE = 100
RESUME_AT_ONCE = 16
"""Histories that are read at the same time: one after the other would cost a round trip each."""

JUDGE_SECONDS = 10.0
"""How often runs that this code has rejected are looked at again."""
PARKED_SECONDS = 300.0
"""How often parked runs are looked for: one that code has not tried is there when that code starts."""
PAUSES = (0.1, 0.4, 1.6)
"""Seconds between tries of a takeover that fails because of the store."""
TRANSIENT = (TryAgain, StoreFault, OSError)

log = logging.getLogger("outlast.engine")


class Claimer:
    """Looks for work for one engine, and hands what it finds to its drives."""

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
        self._luck = random.Random(owner)
        self._lease = lease
        self._timeout_s = lease / 3  # a call that takes longer would cost the lease
        self.concurrency = concurrency
        self._residency = residency
        self._poll_loop = PollLoop(self._timeout_s)
        self._judge_at = self._parked_at = self._clock.monotonic()
        self.on_ticket: Callable[[], Awaitable[None]] | None = None
        """Called when a run has been sent to wait for its turn in a queue."""
        self.error: BaseException | None = None
        """Why the last poll failed."""
        self.failing = Failures(self._clock, lease)
        """Runs that could not be taken over because of the store."""

    @property
    def is_open(self) -> bool:
        """Whether it looks for work by itself."""
        return self._poll_loop.is_running

    @property
    def room(self) -> int:
        """How many more runs this process may drive."""
        return self.concurrency - len(self._drivers)

    def open(self) -> None:
        """Begin to look for work."""
        self._poll_loop.start(self._claim_for_ever())

    async def close(self) -> None:
        """Look for no more; what an answer still brings is given back."""
        await self._poll_loop.stop()

    def look_for_parked(self) -> None:
        """Take up parked runs soon that the code which is here has not tried."""
        self._parked_at = self._clock.monotonic()
        self._store.notifier.wake_local(WakeupKind.RUNS)

    async def claim(
        self,
        limit: int = CLAIM_AT_ONCE,
        *,
        run_ids: Collection[str] | None = None,
        rejected: bool = False,
    ) -> int:
        """Take over runs that can go on and whose code is here, or those of `run_ids`; how many. With
        `rejected` also those that this code has failed on before: they are tried again if no live
        worker has other code."""
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
            # Kept from now on: to read the histories of many may take longer than a lease.
            leases = [self._leases.hold(one.claim, asked=asked) for one in claimed]
            left = {
                lease: one
                for lease, one in zip(leases, claimed, strict=True)
                if not self._drivers.adopt(one.run, one.claim, lease)
            }
        try:
            known = await self._histories([one.run for one in left.values()])
            while left:
                some = list(left.items())[:RESUME_AT_ONCE]
                slow = []
                for lease, one in some:
                    history = known.get(one.run.id)
                    if history is None or one.run.wait_kind == QUEUED:
                        slow.append((one, lease, history))
                    else:
                        # It has all that it needs and waits for nothing: a task would only cost.
                        await self._take_over(one, lease, history)
                await asyncio.gather(*(self._take_over(*what) for what in slow))
                for lease, _ in some:
                    del left[lease]
        finally:
            if left:  # stopped in between: nobody here will ever drive these
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
        """Those that are short, in one call; what cannot be read so is read one by one."""
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
            for pause in (*PAUSES, None):
                if not self._leases.keeps(lease):
                    return
                try:
                    await self._resume(claimed, lease, history)
                    self.failing.end(run.id)
                    return
                except TRANSIENT as error:
                    if pause is None:
                        raise
                    log.warning("run %s is taken over in %s s: %r", run.id, pause, error)
                await self._clock.sleep(pause)
                history = None
        except (Fenced, RunClosed, NotFound) as lost:
            self._leases.drop(lease)
            log.info("run %s is owned by another process, or ended: %s", run.id, lost)
        except Exception as error:  # noqa: BLE001 - one run must not hold up the others
            # The store hands the run out again when its lease ends.
            self._leases.drop(lease)
            self._note_failure(run, error)

    def _note_failure(self, run: Run, error: Exception) -> None:
        times = self.failing.add(run.id, describe(error))
        log.error(
            "run %s could not be taken over (%d times in a row): %r. It is tried again when its lease ends",
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
                raise  # of the store: it says nothing about the code
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
            workflow, run_id=run.id, uid=run.uid, codec=self._codec, replay_log=replay_log
        )
        try:
            execution.replay(replay_log.events)
        except BaseException:
            execution.evict()
            raise
        self._drivers.begin(execution, run, claim, lease, is_resumed=True)

    async def _claim_for_ever(self) -> None:
        while True:
            wakeups = self._store.notifier.wakeups_for(WakeupKind.RUNS)
            room = min(self.room, CLAIM_AT_ONCE)
            self._drivers.is_full = room <= 0
            looked_at = self._clock.now()
            pause = IDLE_SECONDS
            try:
                claimed = await self._claim(room) if room > 0 else 0
                self.error = None
                if claimed and claimed == room:
                    continue
                pause = await self._idle_time(looked_at)
            except (TryAgain, StoreFault, asyncio.CancelledError) as error:
                raise_if_cancelled()
                self.error = error
                # A fault of the store does not pass by itself: an operator has to hear of it.
                level = logging.ERROR if isinstance(error, StoreFault) else logging.WARNING
                log.log(level, "claiming failed, trying again: %s", error)
            except Closed as error:
                self.error = error
                raise  # nothing more can be claimed: the store was closed under us
            except Exception as error:
                self.error = error
                log.exception("claiming failed in an unforeseen way, trying again")
            notifier = self._store.notifier
            await notifier.wait(self._clock, pause, since=wakeups, kind=WakeupKind.RUNS)

    async def _claim(self, room: int) -> int:
        """Claim what is due. From time to time also runs that this code has rejected, in case no worker
        that could try them is left, and runs that are parked."""
        now = self._clock.monotonic()
        if now >= self._parked_at:
            self._parked_at = now + PARKED_SECONDS
            parked = await self._rejections.parked_for_others(room)
            if parked:
                if len(parked) == room:
                    self._parked_at = now
                return await self.claim(room, run_ids=parked)
        if now >= self._judge_at:
            self._judge_at = now + JUDGE_SECONDS * self._luck.uniform(1 - JITTER, 1 + JITTER)
            return await self.claim(room, rejected=True)
        return await self.claim(room)

    async def _idle_time(self, looked_at: datetime) -> float:
        due = await self._store.next_runnable_at(timeout=self._timeout_s)
        self._drivers.runs_wait_for_room = (
            self._drivers.is_full and due is not None and due <= looked_at
        )
        listening = hears_all(self._store.notifier)
        seconds = LISTENING_SECONDS if listening else IDLE_SECONDS
        # Many processes that began together need not look together for ever.
        patience = look_again_after(
            self._clock, seconds * self._luck.uniform(1 - JITTER, 1 + JITTER)
        )
        if due is None:
            return patience
        # What was due when we looked could not be had: its code is not here, or no room is, or it is
        # due by our clock only. That is looked for soon, and then ever more rarely.
        away = abs((due - self._clock.now()).total_seconds())
        return max(min(away, IDLE_SECONDS if due <= looked_at else patience), SHORTEST_PAUSE)
