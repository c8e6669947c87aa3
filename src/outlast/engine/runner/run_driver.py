"""RunDriver: one claimed run in this process, turn after turn, until it ends, rests or is lost.

One turn::

    what has arrived ──▶ execution (code runs) ──▶ ONE commit ──▶ durable ──▶ bodies begin
          ▲                                                                      │
          └──────────── outcomes of bodies, inbox, timers ◀──────────────────────┘

At most one commit is in flight; what arrives meanwhile is the next turn. A refusal for which a
newer claim is the reason ends the drive at once: the process that holds that claim goes on.

While the lease is in doubt, nothing begins and bodies are stopped, but what has ended is kept and
offered with the token of the claim: the store decides whether it was superseded. If the newer claim
is this process's own, got when the lease had expired, the drive goes on under it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from outlast.engine.operations.queued_step import take_back_left
from outlast.engine.operations.step import StepCall
from outlast.engine.operations.waits import SignalWait, TimerWait
from outlast.engine.replay.commit_builder import continued, next_commit, next_wake
from outlast.engine.replay.completion import ending
from outlast.engine.replay.eviction import USUAL, ResidencyPolicy
from outlast.engine.replay.execution import Execution
from outlast.engine.runner.backoff import patiently
from outlast.engine.runner.group_commit import CommitBatcher
from outlast.engine.runner.inbox_reader import InboxReader
from outlast.engine.runner.leases import Lease
from outlast.engine.runner.rejections import Rejections
from outlast.engine.steps.crash_isolation import count_interruptions
from outlast.engine.steps.in_flight import InFlight
from outlast.engine.steps.step_executor import StepExecutor, always
from outlast.engine.steps.wake_event import WakeEvent
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
    TimerFired,
    WorkflowContinued,
)
from outlast.model.run import Change, Run, Status
from outlast.model.times import NOW
from outlast.ports.store import Store

LINGER = timedelta(seconds=2)
"""A run that is due again within this time stays in memory: leaving would cost more."""

ADOPTION_LOOKS = 20
"""How often to look whether a claim that the store has given to this process has arrived here."""

log = logging.getLogger("outlast.engine")

AGAIN = frozenset({EventType.STEP_STARTED, EventType.MAP_PROGRESS})
"""What a process records that only takes up again what another has left."""

UNWRITABLE = (PayloadError, InvalidValue, InvalidId, InvalidCommit, Unsupported)
"""What a store says of a commit that it will never take. It would be refused after every replay, and
what was done before it would be done again each time."""


class RunDriver:
    """The life of one run while this process owns it."""

    def __init__(
        self, store: Store, journal: CommitBatcher, bodies: StepExecutor, rejections: Rejections,
        execution: Execution, run: Run, claim: Claim, lease: Lease, *, patience: float, is_resumed: bool = False,
        residency: ResidencyPolicy = USUAL,
    ) -> None:  # fmt: skip
        self.claim = claim
        self.lease = lease
        self._store = store
        self._clock = store.clock
        self._journal = journal
        self._rejections = rejections
        self._execution = execution
        self._run = run
        self._sequence = run.sequence
        self._revision = run.revision
        self._pending = ""  # the id of the last commit, which may be on its way
        self._releases = False  # whether that commit gives the claim back
        self._patience = patience
        self._paused = run.status is Status.PAUSED
        self._arrived = WakeEvent()
        self._inbox = InboxReader(store, execution, patience)
        self._look = run.inbox > 0
        self.in_flight = InFlight(store, bodies, execution, claim, self._arrived, patience)
        self._is_resumed = is_resumed
        self._leaving = False
        self._drained = False
        self._cut = False
        self._evicts = residency.evicts
        self._is_further = False
        self.may_linger: Callable[[], bool] = always
        """Whether it may stay in memory while it waits for a moment: not where others have no place."""
        self.was_lost = False
        """Whether it has ended because its claim is, or may be, another's."""
        self.is_over = False
        """Whether it has ended with a commit that says so: the run has ended, or rests."""

    def doubt(self) -> None:
        """The lease is in doubt: stop what could act twice, and keep what has ended."""
        self.in_flight.suspend()
        self._arrived.set()

    def adopt(self, run: Run, claim: Claim) -> bool:
        """Go on under a newer claim that this process has got; False if the run was written to
        meanwhile, so that what is in memory is not what is recorded."""
        is_written = run.commit_id == self._pending
        unchanged = run.revision == max(self._revision, self.in_flight.revision) or is_written
        if self._leaving or self.was_lost or run.uid != self.claim.uid or not unchanged:
            return False
        if is_written and self._releases:
            return False  # it rests, though that may not be known here yet
        self.claim = self.in_flight.claim = claim
        self.poke()
        return True

    def stop(self) -> None:
        """Begin nothing more, and hand the run back when what runs has ended."""
        self._leaving = True
        self._arrived.set()

    def cut(self) -> None:
        """Hand the run back now: what still runs is cut off."""
        self._drained = True
        self.stop()

    def poke(self) -> None:
        """Something may be in the inbox: look."""
        self._look = True
        self._arrived.set()

    def forgotten(self) -> list[str]:
        """The keys of what is open for this process to do, and not being done."""
        return [] if self._paused or self._leaving else self.in_flight.forgotten()

    async def go(self) -> Run | None:
        """Turn after turn. The record of the run if it has ended here: that is durable, and whoever
        waits for it need not ask the store."""
        try:
            try:
                if self._is_resumed:
                    await self._take_over()
                await self._take_arrivals()
                while await self._turn():
                    drained = self._leaving and (self._drained or not self.in_flight.is_running)
                    if drained or (self._is_further and self.in_flight.nothing):
                        await self._cut_off()
                    else:
                        self.in_flight.begin(paused=self._paused or self._leaving)
                        await self._wait()
                        await self._take_arrivals()
            except (Mismatch, Undecodable, WorkflowMisuse, *UNWRITABLE) as problem:
                self.in_flight.stop()  # it may be taken over at once
                park = isinstance(problem, UNWRITABLE)
                await self._rejections.reject(
                    self._run, self.claim, problem, sequence=self._sequence, park=park
                )
            self.is_over = True
        except (Fenced, RunClosed, NotFound) as lost:
            self.was_lost = self.was_lost or isinstance(lost, Fenced)
            log.info("run %s is no longer ours: %s", self._run.id, lost)
        finally:
            self.in_flight.stop()
            self._execution.evict()
        return self._run if self._run.status.terminal else None

    async def _take_over(self) -> None:
        """Count what was under way when the last owner died. The inbox comes first: a step whose
        process died after the COMMIT of its own transaction has its outcome there."""
        if self._look:
            self._inbox.takes_over = True
            await self._read_inbox()
            self._inbox.takes_over = False
        suspects = count_interruptions(self._execution, self._run, self._clock.now())
        self.in_flight.suspects.wait(suspects)

    # -- writing ------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Write what was gathered; False when the run has ended or left memory."""
        execution = self._execution
        while True:
            if execution.draft.tasks:
                take_back_left(execution, self._clock.now())
            end = ending(execution)
            if isinstance(end, WorkflowContinued):
                await self._write(continued(execution, self._run, self.claim, end))
                return False
            leaves = end is None and self._cut
            rests = leaves or (end is None and self._rests())
            # A paused run has nothing under way: one whose step was cut off and must not be repeated
            # is handed on as it is, and paused by its next owner.
            paused = self._paused and not (leaves and self.in_flight.is_end_unknown)
            if paused == self._paused and (rests or end is not None or not paused):
                self._inbox.consume_pauses()
            if end is None and not rests and execution.draft.empty:
                return True
            commit = next_commit(
                execution, self._run, self.claim, end,
                sequence=self._sequence, seen=self._inbox.seen, rests=rests,
                paused=paused,
            )  # fmt: skip
            if leaves and not paused and commit.change is not None:
                change = msgspec.structs.replace(commit.change, runnable_at=NOW)
                commit = msgspec.structs.replace(commit, change=change)
            committed = await self._write(commit)
            self._sequence = committed.sequence
            if end is not None:
                self._inbox.tell_what_is_left()
            self.in_flight.recorded()
            self._note(commit.change)
            if self._evicts:
                self._is_further = any(event.type not in AGAIN for event in commit.events)
            if end is not None or leaves:
                return False
            if not rests:
                return True
            # An answer that came again does not say whether something waits: look.
            if not committed.still_runnable and not committed.again:
                return False
            self._look, self._releases = True, False
            await self._take_arrivals()

    async def _write(self, commit: Commit) -> Committed:
        """Make a commit durable, under the claim that there is when it is written. A snapshot is a
        cache: a store that does not take it gets none."""
        while True:
            self._pending, self._releases = commit.id, commit.release
            try:
                outcome = await self._journal.submit(commit)
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
                # What was refused is not written: another commit, which the new claim makes.
                commit = msgspec.structs.replace(commit, id=new_id(), token=token)

    async def _newer_token(self, token: int) -> int | None:
        """The token of a newer claim of this process; None if the newer claim is another's. Its own
        may be known to the store before the answer is here."""
        run = await patiently(
            self._clock,
            lambda seconds: self._store.find_one(self._run.id, timeout=seconds),
            self._patience,
            tries=None,
        )
        if run is None or run.uid != self.claim.uid or run.owner != self.claim.owner:
            return None
        for _ in range(ADOPTION_LOOKS):
            if self.claim.token > token:
                return self.claim.token
            await self._clock.sleep(self._patience / ADOPTION_LOOKS)
        return None

    async def _cut_off(self) -> None:
        """Stop what is under way, and put that on record: it counts for nothing."""
        self._cut = True
        await self.in_flight.cut_off()
        await self._take_arrivals()
        self.in_flight.record_stops()

    def _rests(self) -> bool:
        if not self._paused:
            for operation in self._execution.open.values():
                if operation.busy:
                    return False
        if not self.in_flight.nothing:
            return False
        if self._paused:
            return True
        wake = next_wake(self._execution)
        return wake is None or wake - self._clock.now() > LINGER or not self.may_linger()

    def _note(self, change: Change | None) -> None:
        """Keep what the commits of later turns are built upon."""
        if change is not None and not (
            change.ctx is UNSET
            and change.attributes is UNSET
            and change.error is UNSET
            and change.halt_data is UNSET
        ):
            self._run = msgspec.structs.replace(self._run, **change.values())

    # -- what arrives -------------------------------------------------------------------------

    def _wait(self) -> Awaitable[None]:
        wake = next_wake(self._execution)
        if wake is None or self._paused or self._leaving:
            return self._arrived.wait()
        return self._wait_until(wake)

    async def _wait_until(self, wake: datetime) -> None:
        pause = max((wake - self._clock.now()).total_seconds(), 0.0)
        sleeping = asyncio.ensure_future(self._clock.sleep(pause))
        arriving = asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait((sleeping, arriving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            arriving.cancel()

    async def _take_arrivals(self) -> None:
        """Deliver the outcomes of bodies, the inbox, and what is due, in this order."""
        self.in_flight.deliver()
        if self._look or self.in_flight.look:
            self.in_flight.stop_abandoned()  # to look may take long
            await self._read_inbox()
        if not self._paused and not self._leaving:
            self._inbox.match()
            if self._take_due():
                self._inbox.match()
        self.in_flight.stop_abandoned()

    async def _read_inbox(self) -> None:
        self._look = self.in_flight.look = False
        await self._inbox.read()
        self._paused = self._inbox.paused if self._inbox.paused is not None else self._paused

    def _take_due(self) -> bool:
        """Deliver what the time has come for; whether that was anything."""
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
