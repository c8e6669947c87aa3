"""RunDriver: advances one claimed run, turn after turn, until it ends, is parked or its claim is lost.

One turn::

    what has arrived ──▶ execution (code runs) ──▶ ONE commit ──▶ durable ──▶ steps start
          ▲                                                                      │
          └──────────── outcomes of steps, inbox, timers ◀───────────────────────┘

At most one commit is in flight; what arrives meanwhile belongs to the next turn. A commit that is fenced by a newer
claim ends the driver: the process that holds that claim continues the run.

While the lease is in doubt, no step starts and running ones are cancelled. Outcomes are kept and committed with the
token of the claim: the store decides whether the claim was superseded. If the newer claim belongs to this process,
which claimed the run again after the lease had expired, the driver continues under it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from outlast.engine.operations.map import MapCall
from outlast.engine.operations.step import StepCall, withdraw_abandoned
from outlast.engine.operations.waits import SignalWait, TimerWait
from outlast.engine.replay.commit_builder import continue_commit, next_commit, next_wake
from outlast.engine.replay.completion import end_of
from outlast.engine.replay.execution import Execution
from outlast.engine.replay.replay_log import DEFAULT_RESIDENCY, ResidencyPolicy
from outlast.engine.runner.bug_parking import send_all, sends_of
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.engine.runner.inbox_reader import InboxReader
from outlast.engine.runner.leases import Lease
from outlast.engine.runner.poll_loop import WakeEvent
from outlast.engine.runner.stuck_runs import Rejections
from outlast.engine.steps.crash_isolation import count_interruptions
from outlast.engine.steps.in_flight import InFlight
from outlast.engine.steps.step_executor import StepExecutor, always
from outlast.errors import (
    Fenced,
    InvalidCommit,
    InvalidId,
    InvalidValue,
    Mismatch,
    NotFound,
    PayloadError,
    RunClosed,
    Undecodable,
    Unsupported,
    WorkflowMisuse,
)
from outlast.model.claim import Claim
from outlast.model.commit import Commit, Committed
from outlast.model.event import EventType
from outlast.model.ids import new_id
from outlast.model.payloads import (
    SignalTimeoutEvent,
    StepFailedEvent,
    TimerFired,
    WorkflowContinued,
)
from outlast.model.run import BUG, Change, Run, Status
from outlast.model.times import NOW
from outlast.ports.clock import read_with_retry
from outlast.ports.store import Store

LINGER_TIME = timedelta(seconds=2)
"""A run that is due again within this time stays in memory: a replay would cost more."""

ADOPTION_POLLS = 20
"""How often to check whether a newer claim of this process, which the store knows, has arrived here."""

log = logging.getLogger("outlast.engine")

AGAIN = frozenset({EventType.STEP_STARTED, EventType.MAP_PROGRESS})
"""Events that only resume what another process has left."""

UNWRITABLE = (PayloadError, InvalidValue, InvalidId, InvalidCommit, Unsupported)
"""Refusals of a commit that the store will never accept. It would be refused after every replay, and the steps before
it would be executed again each time."""


class RunDriver:
    """Advances one run while this process holds its claim."""

    def __init__(
        self, store: Store, batcher: CommitBatcher, executor: StepExecutor, rejections: Rejections,
        execution: Execution, run: Run, claim: Claim, lease: Lease, *, timeout_s: float, is_resumed: bool = False,
        residency: ResidencyPolicy = DEFAULT_RESIDENCY,
    ) -> None:  # fmt: skip
        self.claim = claim
        self.lease = lease
        self._store = store
        self._clock = store.clock
        self._batcher = batcher
        self._rejections = rejections
        self._execution = execution
        self._run = run
        self._sequence = run.sequence
        self._revision = run.revision
        self._last_commit_id = ""  # that commit may still be in flight
        self._last_releases = False  # whether that commit releases the claim
        self._timeout_s = timeout_s
        self._paused = run.status is Status.PAUSED
        self._wake_event = WakeEvent()
        self._inbox = InboxReader(store, execution, timeout_s)
        self._should_read_inbox = run.inbox > 0
        self.in_flight = InFlight(
            store, executor, execution, claim, self._wake_event.set, timeout_s
        )
        self._is_resumed = is_resumed
        self._is_stopping = False
        self._stops_now = False
        self._is_cut_off = False
        self._evicts = residency.evicts
        self._has_advanced = False
        self.may_linger: Callable[[], bool] = always
        """Whether it may stay in memory while it waits for a moment: not while other runs wait for room."""
        self.lost_claim = False
        """Whether it has ended because another process has, or may have, the claim."""
        self.is_finished = False
        """Whether its last commit was written: the run has ended or is parked."""

    def on_lease_doubt(self) -> None:
        """The lease is in doubt: cancel steps that could execute twice, and keep outcomes."""
        self.in_flight.suspend()
        self._wake_event.set()

    def adopt(self, run: Run, claim: Claim) -> bool:
        """Continue under a newer claim of this process; False if the run was written meanwhile, so that memory and
        store differ."""
        is_written = run.commit_id == self._last_commit_id
        unchanged = run.revision == max(self._revision, self.in_flight.revision) or is_written
        if self._is_stopping or self.lost_claim or run.uid != self.claim.uid or not unchanged:
            return False
        if is_written and self._last_releases:
            return False  # it is parked, though the answer may not be here yet
        self.claim = self.in_flight.claim = claim
        self.wake()
        return True

    def stop(self) -> None:
        """Start no further step, and hand the run back when the running ones have ended."""
        self._is_stopping = True
        self._wake_event.set()

    def stop_now(self) -> None:
        """Hand the run back now: running steps are cut off."""
        self._stops_now = True
        self.stop()

    def wake(self) -> None:
        """Read the inbox: a message may have arrived."""
        self._should_read_inbox = True
        self._wake_event.set()

    def stalled(self) -> list[str]:
        """The keys of open operations that this process should execute and does not."""
        return [] if self._paused or self._is_stopping else self.in_flight.stalled()

    async def run(self) -> Run | None:
        """Run turn after turn; returns the record of the run if it has ended here. That is durable, so a caller that
        waits for the result need not read the store."""
        try:
            try:
                if self._is_resumed:
                    await self._count_interruptions()
                await self._deliver_arrivals()
                while await self._turn():
                    if self._execution.bug is not None:
                        if await self._park_bug():
                            break
                        continue
                    drained = self._is_stopping and (
                        self._stops_now or not self.in_flight.is_running
                    )
                    if drained or (self._has_advanced and self.in_flight.is_idle):
                        await self._cut_off()
                    else:
                        self.in_flight.launch(paused=self._paused or self._is_stopping)
                        await self._wait()
                        await self._deliver_arrivals()
            except (Mismatch, Undecodable, WorkflowMisuse, *UNWRITABLE) as problem:
                self.in_flight.stop()  # another worker may claim the run at once
                park = isinstance(problem, UNWRITABLE)
                await self._rejections.reject(
                    self._run, self.claim, problem, sequence=self._sequence, park=park
                )
            self.is_finished = True
        except (Fenced, RunClosed, NotFound) as lost:
            self.lost_claim = self.lost_claim or isinstance(lost, Fenced)
            log.info("run %s has another owner, or none: %s", self._run.id, lost)
        finally:
            self.in_flight.stop()
            self._execution.evict()
        return self._run if self._run.status.terminal else None

    async def _count_interruptions(self) -> None:
        """Count the attempts that were in flight when the last owner crashed. The inbox is read first: it has the
        outcome of a transactional step whose process crashed after its COMMIT."""
        if self._should_read_inbox:
            self._inbox.takes_over = True
            await self._read_inbox()
            self._inbox.takes_over = False
        if self._execution.bug is not None:
            return  # the owner that continues it counts them
        self._is_resumed = False
        suspects = count_interruptions(self._execution, self._run, self._clock.now())
        self.in_flight.suspects.wait(suspects)

    async def _park_bug(self) -> bool:
        """The code has ended in a programming error: let running steps end, keep their outcomes in the inbox, and park
        the run. If it was asked to cancel, it is closed and compensated instead. Whether it is parked."""
        execution, in_flight = self._execution, self.in_flight
        in_flight.launch(paused=True)  # no further item of a map starts
        while in_flight.is_running and not self._stops_now:
            await self._wake_event.wait()
            in_flight.deliver()
        if in_flight.is_running:
            await in_flight.cut_off()
        in_flight.deliver()
        now, bug = self._clock.now(), execution.bug
        if await self._inbox.cancel_after_bug():
            for key, delivery, output in execution.undelivered:
                call, payload = execution.open.get(key), delivery
                if isinstance(call, StepCall) and isinstance(delivery, StepFailedEvent):
                    payload = call.final_failure(delivery)
                if isinstance(call, StepCall | MapCall):
                    execution.deliver(payload, now, key=key, output=output)
            execution.undelivered.clear()
            self._should_read_inbox = True
            if self._is_resumed:
                await self._count_interruptions()
            await self._deliver_arrivals()
            return False
        sends = sends_of(execution, self._run, in_flight, now, is_counted=not self._is_resumed)
        if sends:
            await send_all(self._store, sends, self._timeout_s)
        assert isinstance(bug, Exception)
        await self._rejections.reject(self._run, self.claim, bug, sequence=self._sequence, kind=BUG)
        return True

    # -- writing ------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Write the pending commit; False when the run has ended or is parked."""
        execution = self._execution
        while True:
            if execution.pending.tasks:
                withdraw_abandoned(execution, self._clock.now())
            end = None if execution.is_active else end_of(execution)
            if isinstance(end, WorkflowContinued):
                await self._write(continue_commit(execution, self._run, self.claim, end))
                return False
            leaves = end is None and self._is_cut_off
            rests = leaves or (end is None and self._can_park())
            # A paused run has nothing in flight. If an at_most_once step was cut off, the run is handed on as it
            # is, and its next owner pauses it.
            paused = self._paused and not (leaves and self.in_flight.is_end_unknown)
            if self._inbox.has_items and paused == self._paused:
                if rests or end is not None or not paused:
                    self._inbox.consume_pauses()
            if end is None and not rests and execution.pending.empty:
                return True
            commit = next_commit(
                execution, self._run, self.claim, end,
                sequence=self._sequence, seen=self._inbox.seen, rests=rests,
                paused=paused,
            )  # fmt: skip
            # A process that stops reads messages and does not deliver them: the next owner has to.
            hands_on = leaves or (rests and self._is_stopping and self._inbox.has_undelivered)
            if hands_on and not paused and commit.change is not None:
                change = msgspec.structs.replace(commit.change, runnable_at=NOW)
                commit = msgspec.structs.replace(commit, change=change)
            committed = await self._write(commit)
            self._sequence = committed.sequence
            if end is not None:
                self._inbox.warn_of_unread_signals()
            self.in_flight.on_durable()
            self._update_run(commit.change)
            if self._evicts:
                self._has_advanced = any(event.type not in AGAIN for event in commit.events)
            if end is not None or leaves:
                return False
            if not rests:
                return True
            # A repeated answer does not say whether a message waits: read the inbox.
            if not committed.still_runnable and not committed.again:
                return False
            self._should_read_inbox, self._last_releases = True, False
            await self._deliver_arrivals()

    async def _write(self, commit: Commit) -> Committed:
        """Make a commit durable under the current claim. A snapshot is a cache: it is left out if the store refuses
        it."""
        while True:
            self._last_commit_id, self._last_releases = commit.id, commit.release
            try:
                outcome = await self._batcher.submit(commit)
                if isinstance(outcome, Committed):
                    self._revision = outcome.revision
                    return outcome
                raise outcome
            except UNWRITABLE as refused:
                if commit.snapshot is None:
                    raise
                log.warning("the snapshot of run %s is left out: %s", self._run.id, refused)
                commit = msgspec.structs.replace(commit, id=new_id(), snapshot=None)
            except Fenced:
                token = await self._newer_token(commit.token or 0)
                if token is None:
                    raise
                # The refused commit was not written: another one, under the new claim.
                commit = msgspec.structs.replace(commit, id=new_id(), token=token)

    async def _newer_token(self, token: int) -> int | None:
        """The token of a newer claim of this process; None if another process has it. The store may know a claim of
        this process before its answer arrives here."""
        run = await read_with_retry(
            self._clock,
            lambda seconds: self._store.find_one(self._run.id, timeout=seconds),
            self._timeout_s,
            tries=None,
        )
        if run is None or run.uid != self.claim.uid or run.owner != self.claim.owner:
            return None
        for _ in range(ADOPTION_POLLS):
            if self.claim.token > token:
                return self.claim.token
            await self._clock.sleep(self._timeout_s / ADOPTION_POLLS)
        return None

    async def _cut_off(self) -> None:
        """Cut off what is in flight, and record that these attempts do not count."""
        self._is_cut_off = True
        await self.in_flight.cut_off()
        await self._deliver_arrivals()
        self.in_flight.record_stops()

    def _can_park(self) -> bool:
        if self._execution.bug is not None:
            return False
        if not self._paused:
            for operation in self._execution.open.values():
                if operation.is_busy:
                    return False
        if not self.in_flight.is_idle:
            return False
        if self._paused:
            return True
        wake = next_wake(self._execution)
        return wake is None or wake - self._clock.now() > LINGER_TIME or not self.may_linger()

    def _update_run(self, change: Change | None) -> None:
        """Apply to the record what later commits are built upon."""
        if change is not None and not (
            change.ctx is UNSET
            and change.attributes is UNSET
            and change.error is UNSET
            and change.halt_data is UNSET
        ):
            self._run = msgspec.structs.replace(self._run, **change.values())

    # -- what arrives -------------------------------------------------------------------------

    def _wait(self) -> Awaitable[None]:
        wake_at = next_wake(self._execution)
        if wake_at is None or self._paused or self._is_stopping:
            return self._wake_event.wait()
        return self._wait_until(wake_at)

    async def _wait_until(self, wake_at: datetime) -> None:
        pause = max((wake_at - self._clock.now()).total_seconds(), 0.0)
        sleeping = asyncio.ensure_future(self._clock.sleep(pause))
        arriving = asyncio.ensure_future(self._wake_event.wait())
        try:
            await asyncio.wait((sleeping, arriving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            arriving.cancel()

    async def _deliver_arrivals(self) -> None:
        """Deliver the outcomes of steps, the inbox, and due timers, in this order."""
        self.in_flight.deliver()
        if self._execution.bug is not None:
            return
        if self._should_read_inbox or self.in_flight.has_inbox_outcome:
            self.in_flight.stop_abandoned()  # before a read that may take long
            await self._read_inbox()
        if not self._paused and not self._is_stopping:
            if self._inbox.has_items:
                self._inbox.match()
            if self._deliver_due() and self._inbox.has_items:
                self._inbox.match()
        if self._execution.bug is None:
            self.in_flight.stop_abandoned()

    async def _read_inbox(self) -> None:
        self._should_read_inbox = self.in_flight.has_inbox_outcome = False
        await self._inbox.read()
        self._paused = self._inbox.paused if self._inbox.paused is not None else self._paused

    def _deliver_due(self) -> bool:
        """Deliver what is due; whether anything was."""
        waits = [(op.due, op) for op in self._execution.open.values() if op.due is not None]
        if not waits:
            return False
        now = self._clock.now()
        due = [(when, op) for when, op in waits if when <= now]
        for _, operation in sorted(due, key=lambda wait: wait[0]):
            if self._execution.open.get(operation.key) is operation:
                match operation:
                    case TimerWait():
                        self._execution.deliver(TimerFired(), now, key=operation.key)
                    case SignalWait():
                        timeout = SignalTimeoutEvent(signal_name=operation.signal)
                        self._execution.deliver(timeout, now, key=operation.key)
                    case StepCall():
                        self._execution.deliver(operation.next_attempt(), now, key=operation.key)
        return bool(due)
