"""MapExecutor: executes the items of one map, several at once, and reports their outcomes together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime

from msgspec import Raw
from msgspec.structs import replace

from outlast.engine.operations.map import MapCall, portions
from outlast.engine.replay.error_text import describe, details_of
from outlast.engine.replay.execution import Execution
from outlast.engine.steps.step_executor import Outcome, StepContext, StepExecutor, self_cancelled
from outlast.errors import OutlastError
from outlast.model.payloads import OperationAbandoned


class MapExecutor:
    """Executes the items that history allows, `concurrency` at once."""

    def __init__(
        self, call: MapCall, executor: StepExecutor, context: StepContext, wake: Callable[[], None]
    ) -> None:
        self._call = call
        self._executor = executor
        self._context = context
        self._wake = wake
        self._todo = deque(call.open_items)
        self._inherited = frozenset(self._todo if call.is_resumed else ())
        self._is_ending = self._is_announced = False
        self._last_attempts = asyncio.Event()
        self._allowed = call.allowed
        self._running: set[asyncio.Task[None]] = set()
        self._executing: set[int] = set()
        self._results: dict[int, Raw] = {}
        self._failed: dict[int, BaseException] = {}
        self._paused = self._is_stopped = False
        self._broken: BaseException | None = None
        if call.is_awaited or (call.is_over and call.is_undoable):
            self.finish_running()
        elif call.is_over:
            wake()  # there is nothing to execute: no items, or enough results
            return
        self._fill()

    @property
    def call(self) -> MapCall:
        """The map that it executes."""
        return self._call

    @property
    def idle(self) -> bool:
        """Whether nothing is executing, and every outcome is delivered."""
        return not (self._running or self._results or self._failed)

    @property
    def is_stalled(self) -> bool:
        """Whether nothing is executing though the map is not over: it would never end."""
        return self.idle and not self._todo and not self._paused and not self._call.is_over

    @property
    def is_running(self) -> bool:
        """Whether an item is executing."""
        return bool(self._running)

    @property
    def is_awaited(self) -> bool:
        """Whether the code has abandoned it, and its running items finish."""
        return self._call.is_awaited

    @property
    def is_cut_off(self) -> bool:
        """Whether the code has abandoned it, and its running items are cancelled."""
        return self._call.is_abandoned and not self._call.is_awaited

    def finish_running(self) -> None:
        """Start no further item, except those that may have started in another process, and retry none."""
        if not self._is_ending:
            self._is_ending = True
            self._todo = deque(index for index in self._todo if index in self._inherited)
            self._last_attempts.set()
            self._wake()

    def finish(self) -> list[asyncio.Task[None]]:
        """Start no further item; returns the items that cannot be cancelled, because they run in threads."""
        self._paused = True
        return list(self._running) if self._call.step.in_thread else []

    def stop(self) -> None:
        """Cancel the running items."""
        self._paused = self._is_stopped = True
        for task in self._running:
            task.cancel()

    def deliver(self, execution: Execution, now: datetime) -> bool:
        """Deliver the outcomes of items; True when the map is over."""
        call = self._call
        if self._broken is not None:
            raise self._broken  # not an error of an item: the run is dropped and claimed again later
        if execution.open.get(call.key) is not call:
            self.stop()
            return True
        if self._results or self._failed:
            results, self._results = self._results, {}
            errors, self._failed = self._failed, {}
            failed = {index: describe(error) for index, error in errors.items()}
            details = list(map(details_of, errors.values()))
            for portion in portions(results):
                execution.deliver(call.progress(portion, failed, details), now, key=call.key)
                failed, details = {}, []
        end = call.ending()
        if end is not None and call.is_undoable:
            self.finish_running()
        if self._is_ending:
            if self._executing or self._todo:
                self._announce_running(execution, now)
                return False
            end = end or OperationAbandoned()
        if end is not None:
            self.stop()
            execution.deliver(end, now, key=call.key)
        return end is not None

    def _announce_running(self, execution: Execution, now: datetime) -> None:
        """Record once which items another process would have to execute again if this one crashes."""
        if not self._is_announced:
            self._is_announced = True
            running = self._call.last_items((*self._executing, *self._todo))
            execution.deliver(running, now, key=self._call.key)

    def go_on(self, *, paused: bool) -> None:
        """The recorded window is durable: start the items that it allows, unless the run is paused."""
        if not self._is_ending:
            self._todo.extend(range(self._allowed, self._call.allowed))
        self._allowed = self._call.allowed
        self._paused = paused
        self._fill()

    def _fill(self) -> None:
        while self._todo and not self._paused and len(self._running) < self._call.concurrency:
            index = self._todo.popleft()
            self._executing.add(index)
            task = asyncio.create_task(self._run(index))
            self._running.add(task)
            task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._broken = self._broken or task.exception()
            self._fill()
        if not self._running or self._broken:
            self._wake()  # a paused run can be parked now

    async def _run(self, index: int) -> None:
        outcome = await self._attempts(index)
        if outcome.error is not None:
            self._failed[index] = outcome.error
        elif outcome.output is not None:
            self._results[index] = outcome.output
        self._executing.discard(index)
        self._wake()

    async def _attempts(self, index: int) -> Outcome:
        """Execute one item with the retry policy of its step. Retries wait in memory: after a crash the item starts
        again with its first attempt."""
        step, failures = self._call.step, 0
        try:
            _, args, kwargs = step.signature.encode_call(
                self._context.codec, (self._call.items[index],), {}
            )
        except OutlastError as refused:
            return Outcome(None, refused, 0)
        while True:
            context = replace(self._context, key=f"{self._call.key}[{index}]", attempt=failures + 1)
            try:
                outcome = await self._executor.attempt(step, context, args, kwargs)
            except (asyncio.CancelledError, GeneratorExit):
                if self._is_stopped:
                    raise
                outcome = Outcome(None, self_cancelled(step), 0)
            if outcome.error is None:
                return outcome
            failures += 1
            wait = step.retry.wait(failures, outcome.error)
            if wait is None or await self._is_last(wait.total_seconds()):
                return outcome

    async def _is_last(self, seconds: float) -> bool:
        """Wait for the next attempt; True if there is none, because the map is ending."""
        pause = asyncio.ensure_future(self._executor.clock.sleep(seconds))
        ending = asyncio.ensure_future(self._last_attempts.wait())
        try:
            await asyncio.wait((pause, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            ending.cancel()
        return self._is_ending
