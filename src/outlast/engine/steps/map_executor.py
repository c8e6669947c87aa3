"""MapExecutor: the bodies of one map, a few at a time, reported together."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime

from msgspec import Raw
from msgspec.structs import replace

from outlast.engine.operations.map import MapCall, portions
from outlast.engine.replay.error_text import told
from outlast.engine.replay.execution import Execution
from outlast.engine.steps.step_executor import Outcome, StepContext, StepExecutor, self_cancelled
from outlast.engine.steps.wake_event import WakeEvent
from outlast.errors import OutlastError
from outlast.model.payloads import OperationAbandoned


class MapExecutor:
    """Runs the items that history allows, `concurrency` at once."""

    def __init__(
        self, call: MapCall, bodies: StepExecutor, context: StepContext, arrived: WakeEvent
    ) -> None:
        self._call = call
        self._bodies = bodies
        self._context = context
        self._arrived = arrived
        self._todo = deque(call.open_items)
        self._inherited = frozenset(self._todo if call.is_taken_up else ())
        self._is_ending = self._is_told = False
        self._last_attempts = asyncio.Event()
        self._allowed = call.allowed
        self._running: set[asyncio.Task[None]] = set()
        self._at_work: set[int] = set()
        self._results: dict[int, Raw] = {}
        self._failed: dict[int, str] = {}
        self._paused = self._is_stopped = False
        self._broken: BaseException | None = None
        if call.is_awaited or (call.is_over and call.is_undoable):
            self.finish_what_runs()
        elif call.is_over:
            arrived.set()  # there is nothing to do: no items, or enough of them
            return
        self._fill()

    @property
    def call(self) -> MapCall:
        """The map that it does."""
        return self._call

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and all that has ended is recorded."""
        return not (self._running or self._results or self._failed)

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is done for it, though it is not over: it would never end."""
        return self.idle and not self._todo and not self._paused and not self._call.is_over

    @property
    def is_running(self) -> bool:
        """Whether a body of it runs."""
        return bool(self._running)

    @property
    def is_left(self) -> bool:
        """Whether the code no longer waits for it, and what runs goes on to its end."""
        return self._call.is_awaited

    @property
    def is_cut_off(self) -> bool:
        """Whether the code no longer waits for it, and what runs is stopped."""
        return self._call.is_left and not self._call.is_awaited

    def finish_what_runs(self) -> None:
        """Begin nothing more, but for items that may have begun in another process, and try none
        again."""
        if not self._is_ending:
            self._is_ending = True
            self._todo = deque(index for index in self._todo if index in self._inherited)
            self._last_attempts.set()
            self._arrived.set()

    def finish(self) -> list[asyncio.Task[None]]:
        """Begin nothing more; the items that nobody can stop, because they are in threads."""
        self._paused = True
        return list(self._running) if self._call.step.in_thread else []

    def stop(self) -> None:
        """Cancel what runs."""
        self._paused = self._is_stopped = True
        for task in self._running:
            task.cancel()

    def deliver(self, execution: Execution, now: datetime) -> bool:
        """Record the outcomes that have come in; True when the map is over."""
        call = self._call
        if self._broken is not None:
            raise self._broken  # not an item's fault: the run is dropped, and tried again later
        if execution.open.get(call.key) is not call:
            self.stop()
            return True
        if self._results or self._failed:
            results, self._results = self._results, {}
            failed, self._failed = self._failed, {}
            for portion in portions(results):
                execution.deliver(call.progress(portion, failed), now, key=call.key)
                failed = {}
        end = call.ending()
        if end is not None and call.is_undoable:
            self.finish_what_runs()
        if self._is_ending:
            if self._at_work or self._todo:
                self._tell_what_runs(execution, now)
                return False
            end = end or OperationAbandoned()
        if end is not None:
            self.stop()
            execution.deliver(end, now, key=call.key)
        return end is not None

    def _tell_what_runs(self, execution: Execution, now: datetime) -> None:
        """Once: which items another process would have to do again, if this one dies."""
        if not self._is_told:
            self._is_told = True
            running = self._call.last_items((*self._at_work, *self._todo))
            execution.deliver(running, now, key=self._call.key)

    def go_on(self, *, paused: bool) -> None:
        """What was recorded is durable: begin what it allows, unless the run is paused."""
        if not self._is_ending:
            self._todo.extend(range(self._allowed, self._call.allowed))
        self._allowed = self._call.allowed
        self._paused = paused
        self._fill()

    def _fill(self) -> None:
        while self._todo and not self._paused and len(self._running) < self._call.concurrency:
            index = self._todo.popleft()
            self._at_work.add(index)
            task = asyncio.create_task(self._run(index))
            self._running.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._broken = self._broken or task.exception()
            self._fill()
        if not self._running or self._broken:
            self._arrived.set()  # a run that is paused can rest now

    async def _run(self, index: int) -> None:
        outcome = await self._attempts(index)
        if outcome.error is not None:
            self._failed[index] = told(outcome.error)
        elif outcome.output is not None:
            self._results[index] = outcome.output
        self._at_work.discard(index)
        self._arrived.set()

    async def _attempts(self, index: int) -> Outcome:
        """Try one item as often as its step's policy says. These retries wait in memory: a crash
        in between begins the item anew."""
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
                outcome = await self._bodies.attempt(step, context, args, kwargs)
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
        """Wait for the next attempt; whether there is none, because nothing waits for it."""
        pause = asyncio.ensure_future(self._bodies.clock.sleep(seconds))
        ending = asyncio.ensure_future(self._last_attempts.wait())
        try:
            await asyncio.wait((pause, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            pause.cancel()
            ending.cancel()
        return self._is_ending
