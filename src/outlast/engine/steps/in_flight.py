"""InFlight: what of one run happens outside its code just now.

StepExecutor of steps, the bodies of maps, looks for children that have ids of their own, and suspects
that wait for their turn. What becomes of them is kept here until the next turn takes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Raw

from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.queued_step import QueuedStepCall
from outlast.engine.operations.step import StepCall, stop_of
from outlast.engine.replay.execution import Execution
from outlast.engine.runner.backoff import patiently
from outlast.engine.runner.lease_loss import LeaseLossReport
from outlast.engine.steps.crash_isolation import Suspects
from outlast.engine.steps.map_executor import MapExecutor
from outlast.engine.steps.step_executor import (
    Outcome,
    StepContext,
    StepExecutor,
    always,
    self_cancelled,
)
from outlast.engine.steps.transactions import attempt_in_transaction
from outlast.engine.steps.wake_event import WakeEvent
from outlast.errors import Unsupported
from outlast.model.claim import Claim
from outlast.model.payloads import Payload, StepCompleted, StepLost, StepProgress
from outlast.ports.store import Store


class InFlight:
    """The bodies of one run that this process has begun. `arrived` is set whenever one of them has
    something to tell."""

    def __init__(
        self,
        store: Store,
        bodies: StepExecutor,
        execution: Execution,
        claim: Claim,
        arrived: WakeEvent,
        patience: float,
    ) -> None:
        self.suspects = Suspects(bodies.isolation, arrived)
        self.held: Callable[[], bool] = always
        self.look = False
        """Whether one of them has left its outcome in the inbox."""
        self.revision = 0
        """That of the run when the last of them did so."""
        self._store = store
        self._clock = store.clock
        self._loop = asyncio.get_running_loop()
        self._bodies = bodies
        self._execution = execution
        self.claim = claim
        self._arrived = arrived
        self._patience = patience
        self._running: dict[str, asyncio.Task[None]] = {}
        self._cut: dict[str, bool] = {}  # what was cut off; whether because of the lease
        self._lost: list[StepCall | MapExecutor] = []
        self._begun: dict[str, int] = {}
        self._held_back: dict[str, int] = {}
        self._maps: dict[str, MapExecutor] = {}
        self._not_begun: list[StepCall] = []
        self._outcomes: list[tuple[StepCall, Outcome]] = []
        self._found: list[tuple[ChildRun, Payload]] = []
        self._doubt: Exception | None = None

    @property
    def nothing(self) -> bool:
        """Whether nothing is under way, and nothing is left to be taken."""
        return not (
            self._running
            or self._not_begun
            or self._outcomes
            or self._lost
            or self._found
            or not self.suspects.idle
            or (self._maps and not all(mapping.idle for mapping in self._maps.values()))
        )

    @property
    def is_running(self) -> bool:
        """Whether a body runs, or a look for a child."""
        return bool(self._running) or any(mapping.is_running for mapping in self._maps.values())

    def forgotten(self) -> list[str]:
        """The keys of what is open for this process to do, and not being done."""
        if self._outcomes or self._lost or self._found or self._doubt is not None:
            return []
        begins = {operation.key for operation in self._execution.launches}
        return [
            key
            for key, operation in self._execution.open.items()
            if operation.busy
            and operation.recorded
            and operation.due is None
            and not (key in self._running or key in begins or key in self.suspects)
            and (key not in self._maps or self._maps[key].is_forgotten)
        ]

    def losses(self) -> LeaseLossReport:
        """The attempts of steps and maps that were begun here and whose end is recorded nowhere, and those of
        steps that are recorded as begun, and whose bodies were never called because of the lease. What is not
        durable is not reported: the next owner may begin an attempt with the same number."""
        not_begun = {
            call.key: call.attempt
            for call in self._execution.launches
            if isinstance(call, StepCall) and self._held_back.get(call.key) == call.attempt
        }
        return LeaseLossReport(attempts=dict(self._begun), not_begun=not_begun)

    def recorded(self) -> None:
        """All that was delivered is durable now."""
        if self._begun:
            open = self._execution.open
            self._begun = {
                key: attempt
                for key, attempt in self._begun.items()
                if (call := open.get(key)) is not None and call.due is None
            }

    # -- beginning and ending -----------------------------------------------------------------

    def begin(self, *, paused: bool) -> None:
        """Start what is durable now and was not before; nothing while the lease is in doubt."""
        in_doubt = not paused and not self.held()
        for mapping in self._maps.values():
            mapping.go_on(paused=paused or in_doubt)
        self._held_back = self._durable_launches() if in_doubt else {}
        if paused or in_doubt:
            return
        launches, self._execution.launches = self._execution.launches, []
        for operation in launches:
            if self._execution.open.get(operation.key) is not operation:
                continue
            if operation.is_awaited and isinstance(operation, StepCall) and not operation.has_begun:
                self._not_begun.append(operation)
                self._arrived.set()
            else:
                self._begin(operation)

    def _durable_launches(self) -> dict[str, int]:
        """The attempts of steps that are recorded as begun now, and wait for the lease."""
        return {
            call.key: call.attempt
            for call in self._execution.launches
            if isinstance(call, StepCall) and not isinstance(call, QueuedStepCall)
        }

    def stop(self) -> None:
        """Cut off everything, and wait for nothing."""
        self.suspects.stop()
        for key, task in self._running.items():
            self._cut.setdefault(key, False)
            task.cancel()
        for mapping in self._maps.values():
            mapping.stop()

    def suspend(self) -> None:
        """The lease is in doubt: stop the bodies that may act beside those of another process. What is
        in a thread cannot be stopped, and a transaction is fenced by itself: their ends are awaited."""
        for key, body in self._running.items():
            call = self._execution.open.get(key)
            if isinstance(call, StepCall) and not (call.step.in_thread or call.step.transactional):
                self._cut[key] = True
                body.cancel("the lease is in doubt")
        for key, mapping in list(self._maps.items()):
            if mapping.finish():
                continue
            mapping.stop()
            self._lost.append(mapping)  # not delivered now: a commit may be on its way
            del self._maps[key]
            self.suspects.ended(key)

    async def cut_off(self) -> None:
        """Cut off everything, and wait until it has ended."""
        self.suspects.stop()
        threads = [task for key, task in self._running.items() if self._is_in_thread(key)]
        for mapping in self._maps.values():
            threads += mapping.finish()
        if threads:
            # They cannot be stopped: a step that was begun again elsewhere would run beside them.
            await asyncio.wait(threads, timeout=self._bodies.grace)
        running = list(self._running.values())
        self.stop()
        if running:
            # Not gather: that would wait for a body that ignores this even when we are cancelled.
            await asyncio.wait(running)

    def record_stops(self) -> None:
        """Put on record which steps were cut off: that counts for nothing."""
        now = self._clock.now()
        for call in list(self._execution.open.values()):
            if not isinstance(call, StepCall) or isinstance(call, QueuedStepCall):
                continue
            if call.due is None and call.key not in self.suspects:
                # One that has not begun is at nobody's risk, whatever may become of an attempt.
                has_begun = call not in self._execution.launches
                stopped = call.after_stop(now) if has_begun else stop_of(call.attempt, now)
                if stopped is not None:
                    self._execution.deliver(stopped, now, key=call.key)

    @property
    def is_end_unknown(self) -> bool:
        """Whether a step was cut off that must not be repeated: its end is not known."""
        return any(
            isinstance(call, StepCall)
            and not isinstance(call, QueuedStepCall)
            and call.step.at_most_once
            and call.due is None
            and call not in self._execution.launches
            for call in self._execution.open.values()
        )

    def _is_in_thread(self, key: str) -> bool:
        call = self._execution.open.get(key)
        return isinstance(call, StepCall) and call.step.in_thread

    # -- delivering ---------------------------------------------------------------------------

    def deliver(self) -> None:
        """Tell the run's code what has become of them."""
        if self._doubt is not None:
            raise self._doubt
        execution = self._execution
        if self._not_begun:
            calls, self._not_begun = self._not_begun, []
            for call in calls:
                execution.deliver(call.not_begun(), self._clock.now(), key=call.key)
        if self._outcomes:
            outcomes, self._outcomes = self._outcomes, []
            for call, outcome in outcomes:
                self._deliver_outcome(call, outcome)
        if self._lost:
            lost, self._lost = self._lost, []
            for stopped in lost:
                if not isinstance(stopped, MapExecutor):
                    self._deliver_loss(stopped)
                elif not stopped.deliver(execution, self._clock.now()):
                    self._deliver_loss(stopped.call)
        if not self.suspects.idle:
            for turn in self.suspects.whose_turn():
                suspect = turn.suspect
                if execution.open.get(suspect.key) is suspect:
                    interrupted = suspect.after_interruption(alone=turn.alone)
                    execution.deliver(interrupted, self._clock.now(), key=suspect.key)
                else:
                    self.suspects.ended(suspect.key)
            for suspect in self.suspects.survivors():
                if execution.open.get(suspect.key) is suspect and suspect.due is None:
                    survived = StepLost(attempt=suspect.attempt, survived=True)
                    execution.deliver(survived, self._clock.now(), key=suspect.key)
        if self._found:
            found, self._found = self._found, []
            for child, answer in found:
                if execution.open.get(child.key) is child:
                    execution.deliver(answer, self._clock.now(), key=child.key)
        if self._maps:
            for key, mapping in list(self._maps.items()):
                if mapping.deliver(execution, self._clock.now()):
                    del self._maps[key]
                    self.suspects.ended(key)

    def stop_abandoned(self) -> None:
        """Cut off what nobody waits for any more."""
        if self._execution.abandoned:
            for operation in self._execution.abandoned:
                body = self._running.get(operation.key)
                if body is not None:
                    self._cut.setdefault(operation.key, False)
                    body.cancel()
            self._execution.abandoned.clear()
        if self._maps:
            for key, mapping in list(self._maps.items()):
                if mapping.is_left:
                    mapping.finish_what_runs()
                elif mapping.is_cut_off:
                    self._maps.pop(key).stop()

    def _deliver_loss(self, call: StepCall | MapCall) -> None:
        """An attempt was stopped because the lease was in doubt: it is no death, and is made again."""
        if self._execution.open.get(call.key) is not call:
            return
        now = self._clock.now()
        self._execution.deliver(StepLost(attempt=call.attempt), now, key=call.key)
        if call.is_suspect:
            self.suspects.wait([call])
        else:
            self._execution.deliver(call.after_interruption(), now, key=call.key)

    def _deliver_outcome(self, call: StepCall, outcome: Outcome) -> None:
        now = self._clock.now()
        if self._execution.open.get(call.key) is not call:
            return
        if outcome.error is not None:
            self._execution.deliver(call.after_error(outcome.error, now), now, key=call.key)
        else:
            call.value = outcome.value
            done = StepCompleted(duration_ns=outcome.duration_ns)
            self._execution.deliver(done, now, key=call.key, output=outcome.output)

    # -- bodies -------------------------------------------------------------------------------

    def _begin(self, operation: Operation) -> None:
        match operation:
            case StepCall():
                self._begun[operation.key] = operation.attempt
                self._running[operation.key] = self._loop.create_task(self._run_body(operation))
            case MapCall():
                context = self._context(operation, 1, None)
                self._begun[operation.key] = operation.attempt
                self._maps[operation.key] = MapExecutor(
                    operation, self._bodies, context, self._arrived
                )
            case ChildRun(looked_for=False):
                self._running[operation.key] = self._loop.create_task(self._look_for(operation))

    async def _run_body(self, call: StepCall) -> None:
        context = self._context(call, call.attempt, call.progress)
        try:
            if call.step.transactional:
                await self._run_in_transaction(call, context)
                return
            outcome = await self._bodies.attempt(call.step, context, call.args, call.kwargs)
            self._outcomes.append((call, outcome))
        except (asyncio.CancelledError, GeneratorExit):
            if self._cut.get(call.key):
                self._lost.append(call)
            if call.key in self._cut:
                raise
            # The step's own doing. If nobody heard of it, the run would wait for ever.
            error = self_cancelled(call.step)
            if call.step.transactional:
                self._doubt = error  # it may have been committed
            else:
                self._outcomes.append((call, Outcome(None, error, 0)))
        finally:
            self._cut.pop(call.key, None)
            self._running.pop(call.key, None)
            self.suspects.ended(call.key)
            self._arrived.set()

    async def _run_in_transaction(self, call: StepCall, context: StepContext) -> None:
        try:
            outcome = await attempt_in_transaction(
                self._store, self._bodies, call, context, lambda: self.claim
            )
        except Unsupported as missing:
            outcome = Outcome(None, missing, 0)
        except Exception as doubt:  # noqa: BLE001 - it may have been committed
            # Whoever claims the run next finds out: it is locked as long as nobody can know.
            self._doubt = doubt
            return
        if isinstance(outcome, int):
            self.look, self.revision = True, max(self.revision, outcome)
        else:
            self._outcomes.append((call, outcome))

    async def _look_for(self, child: ChildRun) -> None:
        """See what is there under an id that a child has of its own."""
        try:
            run = await patiently(
                self._clock,
                lambda seconds: self._store.find_one(child.child_id, timeout=seconds),
                self._patience,
                tries=None,
            )
            child.looked_for = True
            answer = child.outcome_in(run)
            if answer is not None:
                self._found.append((child, answer))
        except Exception as error:  # noqa: BLE001 - the run would wait for what it never hears of
            self._doubt = error
        finally:
            self._running.pop(child.key, None)
            self._arrived.set()

    def _context(self, call: Operation, attempt: int, progress: Raw | None) -> StepContext:
        key = call.key

        def report(details: Raw) -> None:
            # A plain step is in a thread, and may live on there when its attempt is over.
            self._loop.call_soon_threadsafe(self._report, key, attempt, details)

        return StepContext(
            run_id=self._execution.run_id,
            uid=self.claim.uid,
            life=self._execution.life_of(call),
            key=key,
            attempt=attempt,
            progress=progress,
            report=report,
            codec=self._execution.codec,
            held=self.held,
        )

    def _report(self, key: str, attempt: int, details: Raw) -> None:
        call = self._execution.open.get(key)
        if isinstance(call, StepCall) and call.attempt == attempt:
            progress = StepProgress(attempt=attempt, details=details)
            self._execution.deliver(progress, self._clock.now(), key=key)
            self._arrived.set()
