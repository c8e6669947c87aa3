"""MapBodies: the bodies of one map, a few at a time, reported together."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime

from msgspec import Raw
from msgspec.structs import replace

from outlast.engine.bell import Bell
from outlast.engine.bodies import Bodies, Outcome, StepContext, self_cancelled
from outlast.engine.error_text import told
from outlast.engine.execution import Execution
from outlast.engine.operations.map import MapCall, portions
from outlast.errors import OutlastError


class MapBodies:
    """Runs the items that history allows, `concurrency` at once."""

    def __init__(self, call: MapCall, bodies: Bodies, context: StepContext, arrived: Bell) -> None:
        self._call = call
        self._bodies = bodies
        self._context = context
        self._arrived = arrived
        self._todo = deque(call.open_items)
        self._allowed = call.allowed
        self._running: set[asyncio.Task[None]] = set()
        self._results: dict[int, Raw] = {}
        self._failed: dict[int, str] = {}
        self._paused = self._is_stopped = False
        self._broken: BaseException | None = None
        if call.is_over:
            arrived.ring()  # there is nothing to do: no items, or enough of them
        else:
            self._fill()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, and all that has ended is recorded."""
        return not (self._running or self._results or self._failed)

    @property
    def abandoned(self) -> bool:
        """Whether the code no longer waits for it."""
        return self._call.future is not None and self._call.future.cancelled()

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
        if end is not None:
            self.stop()
            execution.deliver(end, now, key=call.key)
            return True
        return False

    def go_on(self, *, paused: bool) -> None:
        """What was recorded is durable: begin what it allows, unless the run is paused."""
        self._todo.extend(range(self._allowed, self._call.allowed))
        self._allowed = self._call.allowed
        self._paused = paused
        self._fill()

    def _fill(self) -> None:
        while self._todo and not self._paused and len(self._running) < self._call.concurrency:
            task = asyncio.create_task(self._run(self._todo.popleft()))
            self._running.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._broken = self._broken or task.exception()
            self._fill()
        if not self._running or self._broken:
            self._arrived.ring()  # a run that is paused can rest now

    async def _run(self, index: int) -> None:
        outcome = await self._attempts(index)
        if outcome.error is not None:
            self._failed[index] = told(outcome.error)
        elif outcome.output is not None:
            self._results[index] = outcome.output
        self._arrived.ring()

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
            if wait is None:
                return outcome
            await self._bodies.clock.sleep(wait.total_seconds())
