"""InFlight: what this process executes of one run: steps, maps, checks of child ids, and suspects that wait.

Their outcomes are kept here until the next turn delivers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Raw
from msgspec.structs import replace

from outlast.engine.operations.child import ChildRun
from outlast.engine.operations.map import MapCall
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import LeaseLossReport, QueuedStepCall, StepCall, stop_failure
from outlast.engine.replay.execution import Execution
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
from outlast.errors import Unsupported
from outlast.model.claim import Claim
from outlast.model.payloads import Payload, StepCompleted, StepLost, StepProgress
from outlast.ports.clock import read_with_retry
from outlast.ports.store import Store


class InFlight:
    """The operations of one run that this process executes. It calls `wake` when an outcome is ready."""

    def __init__(
        self,
        store: Store,
        executor: StepExecutor,
        execution: Execution,
        claim: Claim,
        wake: Callable[[], None],
        timeout_s: float,
    ) -> None:
        self.claim = claim
        self.suspects = Suspects(executor.isolation, wake)
        self.lease_held: Callable[[], bool] = always
        self.has_inbox_outcome = False
        """Whether a transactional step has sent its outcome to the inbox."""
        self.revision = 0
        """The revision of the run after the last such step."""
        self._store = store
        self._clock = store.clock
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._execution = execution
        self._wake = wake
        self._timeout_s = timeout_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._cut: dict[str, bool] = {}  # what was cut off; whether because of the lease
        self._never_called: set[tuple[str, int]] = set()  # at_most_once: keys and attempts
        self._lost: list[StepCall | MapExecutor] = []
        self._attempts: dict[str, int] = {}
        self._held_back: dict[str, int] = {}
        self._maps: dict[str, MapExecutor] = {}
        self._never_started: list[StepCall] = []
        self._outcomes: list[tuple[StepCall, Outcome]] = []
        self._child_outcomes: list[tuple[ChildRun, Payload]] = []
        self._error: Exception | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is executing, and every outcome is delivered."""
        return not (
            self._running
            or self._never_started
            or self._outcomes
            or self._lost
            or self._child_outcomes
            or (self.suspects.has_any and not self.suspects.idle)
            or (self._maps and not all(executor.idle for executor in self._maps.values()))
        )

    @property
    def is_running(self) -> bool:
        """Whether a step, an item of a map or a check of a child id is executing."""
        return bool(self._running) or any(one.is_running for one in self._maps.values())

    def stalled(self) -> list[str]:
        """The keys of open operations that this process should execute and does not."""
        if self._outcomes or self._lost or self._child_outcomes or self._error is not None:
            return []
        launching = {operation.key for operation in self._execution.launches}
        return [
            key
            for key, operation in self._execution.open.items()
            if operation.is_busy
            and operation.recorded
            and operation.due is None
            and not (key in self._running or key in launching or key in self.suspects)
            and (key not in self._maps or self._maps[key].is_stalled)
        ]

    def losses(self) -> LeaseLossReport:
        """The attempts that started here and whose end is not recorded, and those that are recorded as started but
        were held back because of the lease. What is not durable is not reported: the next owner may start an attempt
        with the same number."""
        not_started = {
            call.key: call.attempt
            for call in self._execution.launches
            if isinstance(call, StepCall) and self._held_back.get(call.key) == call.attempt
        }
        return LeaseLossReport(
            life=self.claim.uid, attempts=dict(self._attempts), not_started=not_started
        )

    def on_durable(self) -> None:
        """All that was delivered is durable now."""
        if self._attempts:
            open = self._execution.open
            self._attempts = {
                key: attempt
                for key, attempt in self._attempts.items()
                if (call := open.get(key)) is not None and call.due is None
            }

    # -- starting and stopping ----------------------------------------------------------------

    def launch(self, *, paused: bool) -> None:
        """Start the operations whose intents are durable now; none while the lease is in doubt."""
        in_doubt = not paused and not self.lease_held()
        for executor in self._maps.values():
            executor.go_on(paused=paused or in_doubt)
        self._held_back = self._durable_launches() if in_doubt else {}
        if paused or in_doubt:
            return
        launches, self._execution.launches = self._execution.launches, []
        for operation in launches:
            if self._execution.open.get(operation.key) is not operation:
                continue
            if (
                operation.is_awaited
                and isinstance(operation, StepCall)
                and not operation.may_have_started
            ):
                self._never_started.append(operation)
                self._wake()
            else:
                self._start(operation)

    def _durable_launches(self) -> dict[str, int]:
        """The attempts of steps that are durable now and wait for the lease."""
        return {
            call.key: call.attempt
            for call in self._execution.launches
            if isinstance(call, StepCall) and not isinstance(call, QueuedStepCall)
        }

    def stop(self) -> None:
        """Cancel everything without waiting for it."""
        self.suspects.stop()
        for key, task in self._running.items():
            self._cut.setdefault(key, False)
            task.cancel()
        for executor in self._maps.values():
            executor.stop()

    def suspend(self) -> None:
        """The lease is in doubt: cancel what another process may execute at the same time. A step in a thread cannot
        be cancelled, and a transactional step is fenced by its commit: their ends are awaited."""
        for key, task in self._running.items():
            call = self._execution.open.get(key)
            if isinstance(call, StepCall) and not (call.step.in_thread or call.step.transactional):
                self._cut[key] = True
                task.cancel("the lease is in doubt")
        for key, executor in list(self._maps.items()):
            if executor.finish():
                continue
            executor.stop()
            self._lost.append(executor)  # not delivered now: a commit may be in flight
            del self._maps[key]
            self.suspects.ended(key)

    async def cut_off(self) -> None:
        """Cancel everything and wait until it has ended."""
        self.suspects.stop()
        threads = [task for key, task in self._running.items() if self._is_in_thread(key)]
        for executor in self._maps.values():
            threads += executor.finish()
        if threads:
            # They cannot be cancelled: another process would execute the same step beside them.
            await asyncio.wait(threads, timeout=self._executor.grace)
        running = list(self._running.values())
        self.stop()
        if running:
            # Not gather: cancelled, that would still wait for a step that ignores its cancellation.
            await asyncio.wait(running)

    def record_stops(self) -> None:
        """Record which steps were cut off; these attempts do not count as interruptions."""
        now = self._clock.now()
        for call in list(self._execution.open.values()):
            if not isinstance(call, StepCall) or isinstance(call, QueuedStepCall):
                continue
            if call.due is None and call.key not in self.suspects:
                # A step that has not started has had no effect, also if it is at_most_once.
                stopped = call.after_stop(now)
                if stopped is None and not self._has_started(call):
                    stopped = stop_failure(call.attempt, now)
                if stopped is not None:
                    self._execution.deliver(stopped, now, key=call.key)

    @property
    def is_end_unknown(self) -> bool:
        """Whether an at_most_once step was cut off: its outcome is unknown."""
        return any(
            isinstance(call, StepCall)
            and not isinstance(call, QueuedStepCall)
            and call.step.at_most_once
            and call.due is None
            and self._has_started(call)
            for call in self._execution.open.values()
        )

    def _has_started(self, call: StepCall) -> bool:
        """Whether the function of an at_most_once step may have been called."""
        waits = (call.key, call.attempt) in self._never_called
        return not waits and call not in self._execution.launches

    def _is_in_thread(self, key: str) -> bool:
        call = self._execution.open.get(key)
        return isinstance(call, StepCall) and call.step.in_thread

    # -- delivering ---------------------------------------------------------------------------

    def deliver(self) -> None:
        """Deliver all outcomes to the run's code."""
        if self._error is not None:
            raise self._error
        execution = self._execution
        if self._never_started:
            calls, self._never_started = self._never_started, []
            for call in calls:
                execution.deliver(call.never_started(), self._clock.now(), key=call.key)
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
        if self.suspects.has_any:
            self._deliver_suspects()
        if self._child_outcomes:
            found, self._child_outcomes = self._child_outcomes, []
            for child, answer in found:
                if execution.open.get(child.key) is child:
                    execution.deliver(answer, self._clock.now(), key=child.key)
        if self._maps:
            for key, executor in list(self._maps.items()):
                if executor.deliver(execution, self._clock.now()):
                    del self._maps[key]
                    self.suspects.ended(key)

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

    def _deliver_loss(self, call: StepCall | MapCall) -> None:
        """An attempt was cancelled because the lease was in doubt: it is no interruption, and is made again."""
        if self._execution.open.get(call.key) is not call:
            return
        now = self._clock.now()
        self._execution.deliver(StepLost(attempt=call.attempt), now, key=call.key)
        if call.is_suspect:
            self.suspects.wait([call])
        else:
            self._execution.deliver(call.after_interruption(), now, key=call.key)

    def _deliver_suspects(self) -> None:
        execution = self._execution
        for turn in self.suspects.take_turns():
            suspect = turn.suspect
            if execution.open.get(suspect.key) is suspect:
                interrupted = suspect.after_interruption(alone=turn.alone)
                execution.deliver(interrupted, self._clock.now(), key=suspect.key)
            else:
                self.suspects.ended(suspect.key)
        for suspect in self.suspects.take_survivors():
            if execution.open.get(suspect.key) is suspect and suspect.due is None:
                survived = StepLost(attempt=suspect.attempt, survived=True)
                execution.deliver(survived, self._clock.now(), key=suspect.key)

    def stop_abandoned(self) -> None:
        """Cancel what the code has abandoned."""
        if self._execution.abandoned:
            for operation in self._execution.abandoned:
                task = self._running.get(operation.key)
                if task is not None:
                    self._cut.setdefault(operation.key, False)
                    task.cancel()
            self._execution.abandoned.clear()
        if self._maps:
            for key, executor in list(self._maps.items()):
                if executor.is_awaited:
                    executor.finish_running()
                elif executor.is_cut_off:
                    self._maps.pop(key).stop()

    # -- executing ----------------------------------------------------------------------------

    def _start(self, operation: Operation) -> None:
        match operation:
            case StepCall():
                self._attempts[operation.key] = operation.attempt
                self._running[operation.key] = self._loop.create_task(self._run_step(operation))
            case MapCall():
                context = self._context(operation, 1, None)
                self._attempts[operation.key] = operation.attempt
                self._maps[operation.key] = MapExecutor(
                    operation, self._executor, context, self._wake
                )
            case ChildRun(is_id_checked=False):
                self._running[operation.key] = self._loop.create_task(self._check_id(operation))

    async def _run_step(self, call: StepCall) -> None:
        context = self._context(call, call.attempt, call.progress)
        if call.step.at_most_once:
            attempt = (call.key, call.attempt)
            self._never_called.discard(attempt)
            context = replace(context, on_never_called=partial(self._never_called.add, attempt))
        try:
            if call.step.transactional:
                await self._run_in_transaction(call, context)
                return
            outcome = await self._executor.attempt(call.step, context, call.args, call.kwargs)
            self._outcomes.append((call, outcome))
        except (asyncio.CancelledError, GeneratorExit):
            if self._cut.get(call.key):
                if self._has_started(call):
                    self._lost.append(call)
                else:
                    self._attempts.pop(call.key, None)
                    self._execution.launches.append(call)
            if call.key in self._cut:
                raise
            # The step cancelled itself. Without an outcome the run would wait for ever.
            error = self_cancelled(call.step)
            if call.step.transactional:
                self._error = error  # it may have been committed
            else:
                self._outcomes.append((call, Outcome(None, error, 0)))
        finally:
            self._cut.pop(call.key, None)
            self._running.pop(call.key, None)
            if self.suspects.has_any:
                self.suspects.ended(call.key)
            self._wake()

    async def _run_in_transaction(self, call: StepCall, context: StepContext) -> None:
        try:
            outcome = await attempt_in_transaction(
                self._store, self._executor, call, context, lambda: self.claim
            )
        except Unsupported as missing:
            outcome = Outcome(None, missing, 0)
        except Exception as unknown:  # noqa: BLE001 - it may have been committed
            # The process that claims the run next finds out: the run is locked until the transaction has ended.
            self._error = unknown
            return
        if isinstance(outcome, int):
            self.has_inbox_outcome, self.revision = True, max(self.revision, outcome)
        else:
            self._outcomes.append((call, outcome))

    async def _check_id(self, child: ChildRun) -> None:
        """Read the run that has the explicit id of a child."""
        try:
            run = await read_with_retry(
                self._clock,
                lambda seconds: self._store.find_one(child.child_id, timeout=seconds),
                self._timeout_s,
                tries=None,
            )
            child.is_id_checked = True
            answer = child.outcome_in(run)
            if answer is not None:
                self._child_outcomes.append((child, answer))
        except Exception as error:  # noqa: BLE001 - the run would wait for ever
            self._error = error
        finally:
            self._running.pop(child.key, None)
            self._wake()

    def _context(self, call: Operation, attempt: int, progress: Raw | None) -> StepContext:
        key = call.key

        def report(details: Raw) -> None:
            # A plain step runs in a thread, and may outlive its attempt there.
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
            lease_held=self.lease_held,
        )

    def _report(self, key: str, attempt: int, details: Raw) -> None:
        call = self._execution.open.get(key)
        if isinstance(call, StepCall) and call.attempt == attempt:
            progress = StepProgress(attempt=attempt, details=details)
            self._execution.deliver(progress, self._clock.now(), key=key)
            self._wake()
