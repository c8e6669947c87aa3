"""Drive: one claimed run in this process, turn after turn, until it ends, rests or is lost.

One turn::

    what has arrived ──▶ execution (code runs) ──▶ ONE commit ──▶ durable ──▶ bodies begin
          ▲                                                                      │
          └──────────── outcomes of bodies, inbox, timers ◀──────────────────────┘

At most one commit is in flight; what arrives meanwhile is the next turn. A refusal for which a
newer claim is the reason ends the drive at once: whoever holds that claim goes on.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import msgspec
from msgspec import UNSET, Raw

from outlast.engine.arrivals import Inbox, patiently
from outlast.engine.bodies import Bodies, Outcome, StepContext
from outlast.engine.execution import Execution
from outlast.engine.interruptions import Suspects
from outlast.engine.journal import Journal
from outlast.engine.mapping import MapBodies
from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.remote import RemoteStep
from outlast.engine.operations.signal import SignalWait
from outlast.engine.operations.step import StepCall
from outlast.engine.operations.timer import TimerWait
from outlast.engine.transactions import attempt_in_transaction
from outlast.engine.turn import continued, ending, next_commit, next_wake, parked
from outlast.errors import (
    Fenced,
    Mismatch,
    NotFound,
    RunClosed,
    Undecodable,
    Unsupported,
    WorkflowMisuse,
)
from outlast.model.claim import Claim
from outlast.model.payloads import (
    Payload,
    SignalTimeout,
    StepCompleted,
    StepProgress,
    TimerFired,
    WorkflowContinued,
)
from outlast.model.run import Change, Run, Status
from outlast.model.times import NOW
from outlast.ports.store import Store

LINGER = timedelta(seconds=2)
"""A run that is due again within this time stays in memory: leaving would cost more."""

NOTED = ("ctx", "attributes", "error", "halt_data")
"""What of a run's record the commits of later turns depend on."""

log = logging.getLogger("outlast.engine")


class Drive:
    """The life of one run while this process owns it."""

    def __init__(
        self, store: Store, journal: Journal, bodies: Bodies, execution: Execution, run: Run,
        claim: Claim,
    ) -> None:  # fmt: skip
        self.claim = claim
        self._store = store
        self._clock = store.clock
        self._journal = journal
        self._bodies = bodies
        self._execution = execution
        self._run = run
        self._sequence = run.sequence
        self._paused = run.status is Status.PAUSED
        self._running: dict[str, asyncio.Task[None]] = {}
        self._maps: dict[str, MapBodies] = {}
        self._outcomes: list[tuple[StepCall, Outcome]] = []
        self._found: list[tuple[ChildRun, Payload]] = []
        self._arrived = asyncio.Event()
        self._inbox = Inbox(store, execution)
        self._look = run.inbox > 0
        self.suspects = Suspects(bodies.solitude, self._arrived)
        self._leaving = False
        self._cut = False
        self._doubt: Exception | None = None

    def stop(self) -> None:
        """Cut off what is under way and hand the run back, soon."""
        self._leaving = True
        self._arrived.set()

    def poke(self) -> None:
        """Something may be in the inbox: look."""
        self._look = True
        self._arrived.set()

    async def go(self) -> None:
        """Turn after turn."""
        try:
            try:
                await self._take_arrivals()
                while await self._turn():
                    if self._leaving:
                        await self._cut_off()
                    else:
                        self._begin_bodies()
                        await self._wait()
                        await self._take_arrivals()
            except (Mismatch, Undecodable, WorkflowMisuse) as problem:
                log.error("run %s is halted: %s", self._run.id, problem)
                await self._journal.commit(parked(self.claim, self._sequence, problem))
        except (Fenced, RunClosed, NotFound) as lost:
            log.info("run %s is no longer ours: %s", self._run.id, lost)
        finally:
            self.suspects.stop()
            for task in self._running.values():
                task.cancel()
            for mapping in self._maps.values():
                mapping.stop()
            self._execution.evict()

    # -- writing ------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Write what was gathered; False when the run has ended or left memory."""
        execution = self._execution
        while True:
            end = ending(execution)
            if isinstance(end, WorkflowContinued):
                await self._journal.commit(continued(execution, self._run, self.claim, end))
                return False
            leaves = end is None and self._cut
            rests = leaves or (end is None and self._rests())
            if rests or end is not None or not self._paused:
                self._inbox.fold_pauses()
            if end is None and not rests and execution.draft.empty:
                return True
            commit = next_commit(
                execution, self._run, self.claim,
                sequence=self._sequence, seen=self._inbox.seen, rests=rests,
                paused=self._paused,
            )  # fmt: skip
            if leaves and not self._paused and commit.change is not None:
                change = msgspec.structs.replace(commit.change, runnable_at=NOW)
                commit = msgspec.structs.replace(commit, change=change)
            committed = await self._journal.commit(commit)
            self._sequence = committed.sequence
            self._note(commit.change)
            if end is not None:
                self._inbox.tell_what_is_left()
            if end is not None or leaves:
                return False
            if not rests:
                return True
            # An answer that came again does not say whether something waits: look.
            if not committed.still_runnable and not committed.again:
                return False
            self._look = True
            await self._take_arrivals()

    async def _cut_off(self) -> None:
        """Stop what is under way, and put that on record: it counts for nothing."""
        self._cut = True
        self.suspects.stop()
        threads = [task for key, task in self._running.items() if self._is_in_thread(key)]
        for mapping in self._maps.values():
            threads += mapping.finish()
        if threads:
            # They cannot be stopped: a step that was begun again elsewhere would run beside them.
            await asyncio.wait(threads, timeout=self._bodies.grace)
        running = list(self._running.values())
        for task in running:
            task.cancel()
        for mapping in self._maps.values():
            mapping.stop()
        if running:
            # Not gather: that would wait for a body that ignores this even when we are cancelled.
            await asyncio.wait(running)
        await self._take_arrivals()
        now = self._clock.now()
        for call in list(self._execution.open.values()):
            if not isinstance(call, StepCall) or isinstance(call, RemoteStep):
                continue
            if call.due is None and call.key not in self.suspects:
                stopped = call.after_stop(now)
                if stopped is not None:
                    self._execution.deliver(stopped, now, key=call.key)

    def _is_in_thread(self, key: str) -> bool:
        call = self._execution.open.get(key)
        return isinstance(call, StepCall) and call.step.in_thread

    def _rests(self) -> bool:
        if (
            self._running
            or not self.suspects.idle
            or not all(mapping.idle for mapping in self._maps.values())
        ):
            return False
        if self._outcomes or self._found:
            return False  # they came while the inbox was read
        if self._paused:
            return True
        if any(operation.busy for operation in self._execution.open.values()):
            return False
        wake = next_wake(self._execution)
        return wake is None or wake - self._clock.now() > LINGER

    def _note(self, change: Change | None) -> None:
        """Keep what the next change is built upon."""
        if change is not None and any(getattr(change, name) is not UNSET for name in NOTED):
            self._run = msgspec.structs.replace(self._run, **change.values())

    # -- what arrives -------------------------------------------------------------------------

    async def _wait(self) -> None:
        wake = next_wake(self._execution)
        if wake is None or self._paused:
            await self._arrived.wait()
        else:
            pause = max((wake - self._clock.now()).total_seconds(), 0.0)
            sleeping = asyncio.ensure_future(self._clock.sleep(pause))
            arriving = asyncio.ensure_future(self._arrived.wait())
            try:
                await asyncio.wait((sleeping, arriving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sleeping.cancel()
                arriving.cancel()
        self._arrived.clear()

    async def _take_arrivals(self) -> None:
        """Deliver the outcomes of bodies, the inbox, and what is due, in this order."""
        execution = self._execution
        if self._doubt is not None:
            raise self._doubt
        outcomes, self._outcomes = self._outcomes, []
        for call, outcome in outcomes:
            self._take_outcome(call, outcome)
        for suspect in self.suspects.whose_turn():
            if execution.open.get(suspect.key) is suspect:
                execution.deliver(suspect.after_interruption(), self._clock.now(), key=suspect.key)
            else:
                self.suspects.ended(suspect.key)
        found, self._found = self._found, []
        for child, answer in found:
            if execution.open.get(child.key) is child:
                execution.deliver(answer, self._clock.now(), key=child.key)
        if self._maps:
            for key, mapping in list(self._maps.items()):
                if mapping.deliver(execution, self._clock.now()):
                    del self._maps[key]
                    self.suspects.ended(key)
        if self._look:
            self._look = False
            await self._inbox.read()
            self._paused = self._inbox.paused if self._inbox.paused is not None else self._paused
        if not self._paused:
            self._inbox.match(self._clock.now())
            self._take_due()
            self._inbox.match(self._clock.now())
        if self._maps:
            for key in [key for key, mapping in self._maps.items() if mapping.abandoned]:
                self._maps.pop(key).stop()

    def _take_outcome(self, call: StepCall, outcome: Outcome) -> None:
        now = self._clock.now()
        if self._execution.open.get(call.key) is not call:
            return
        if outcome.error is not None:
            self._execution.deliver(call.after_error(outcome.error, now), now, key=call.key)
        else:
            done = StepCompleted(duration_ns=outcome.duration_ns)
            self._execution.deliver(done, now, key=call.key, output=outcome.output)

    def _take_due(self) -> None:
        now = self._clock.now()
        waits = [op for op in self._execution.open.values() if op.due is not None]
        due = [op for op in waits if op.due is not None and op.due <= now]
        for operation in sorted(due, key=lambda op: op.due or now):
            if self._execution.open.get(operation.key) is operation:
                match operation:
                    case TimerWait():
                        self._execution.deliver(TimerFired(), now, key=operation.key)
                    case SignalWait():
                        timeout = SignalTimeout(signal_name=operation.signal)
                        self._execution.deliver(timeout, now, key=operation.key)
                    case StepCall():
                        self._execution.deliver(operation.next_attempt(), now, key=operation.key)

    # -- bodies -------------------------------------------------------------------------------

    def _begin_bodies(self) -> None:
        """Start what is durable now and was not before."""
        for mapping in self._maps.values():
            mapping.go_on(paused=self._paused)
        if self._paused:
            return
        launches, self._execution.launches = self._execution.launches, []
        for operation in launches:
            if self._execution.open.get(operation.key) is operation:
                self._begin(operation)

    def _begin(self, operation: Operation) -> None:
        match operation:
            case StepCall():
                task = asyncio.create_task(self._run_body(operation))
                self._running[operation.key] = task
                # An abandoned step has nobody who waits for it: its body is cancelled too.
                if operation.future is not None:
                    operation.future.add_done_callback(
                        lambda future: task.cancel() if future.cancelled() else None
                    )
            case MapCall():
                context = self._context(operation, 1, None)
                self._maps[operation.key] = MapBodies(
                    operation, self._bodies, context, self._arrived
                )
            case ChildRun(looked_for=False):
                self._running[operation.key] = asyncio.create_task(self._look_for(operation))

    async def _run_body(self, call: StepCall) -> None:
        context = self._context(call, call.attempt, call.progress)
        try:
            if call.step.transactional:
                await self._run_in_transaction(call, context)
                return
            outcome = await self._bodies.attempt(call.step, context, call.args, call.kwargs)
            self._outcomes.append((call, outcome))
        finally:
            self._running.pop(call.key, None)
            self.suspects.ended(call.key)
            self._arrived.set()

    async def _run_in_transaction(self, call: StepCall, context: StepContext) -> None:
        try:
            outcome = await attempt_in_transaction(
                self._store, self._bodies, call, context, self.claim
            )
        except Unsupported as missing:
            outcome = Outcome(None, missing, 0)
        except Exception as doubt:  # noqa: BLE001 - it may have been committed
            # Whoever claims the run next finds out: it is locked as long as nobody can know.
            self._doubt = doubt
            return
        if outcome is None:
            self._look = True
        else:
            self._outcomes.append((call, outcome))

    async def _look_for(self, child: ChildRun) -> None:
        """See what is there under an id that a child has of its own."""
        try:
            run = await patiently(self._clock, lambda: self._store.find_one(child.child_id))
            child.looked_for = True
            answer = None if run is None else child.outcome_in(run)
            if answer is not None:
                self._found.append((child, answer))
        finally:
            self._running.pop(child.key, None)
            self._arrived.set()

    def _context(self, call: Operation, attempt: int, progress: Raw | None) -> StepContext:
        loop, key = asyncio.get_running_loop(), call.key

        def report(details: Raw) -> None:
            # A plain step is in a thread, and may live on there when its attempt is over.
            loop.call_soon_threadsafe(self._report, key, attempt, details)

        return StepContext(
            run_id=self._run.id,
            uid=self.claim.uid,
            life=self._execution.life_of(call),
            key=key,
            attempt=attempt,
            progress=progress,
            report=report,
            codec=self._execution.codec,
        )

    def _report(self, key: str, attempt: int, details: Raw) -> None:
        call = self._execution.open.get(key)
        if isinstance(call, StepCall) and call.attempt == attempt:
            progress = StepProgress(attempt=attempt, details=details)
            self._execution.deliver(progress, self._clock.now(), key=key)
            self._arrived.set()
