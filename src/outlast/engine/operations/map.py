"""A map: one step over many items, recorded as one operation.

History contains up to which item calls may have started and, with each commit, which items are done with which result.
The results are returned in the order of the items.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.definitions.retry import MAX_LOST, SUSPECT_AFTER
from outlast.engine.operations.operation import Operation
from outlast.engine.operations.step import is_crash_cause, lease_loss_failure
from outlast.engine.replay.error_text import with_place
from outlast.errors import InvalidValue, MapFailed, StepFailed, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.payloads import (
    ErrorDetails,
    MapCompleted,
    MapFailedEvent,
    MapProgress,
    MapStarted,
    OperationAbandoned,
    Payload,
    StepLost,
)
from outlast.model.run_contents import Fact

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

SEGMENT_ITEMS = 1000
INLINE_BYTES = 256 * 1024
PORTION_BYTES = 4 * 1024 * 1024
"""Results in one event, which has a size limit."""
AHEAD = 4
"""This many times the concurrency may start beyond the finished items, so that one commit announces many of them."""


class MapCall(Operation):
    """All calls of one map."""

    may_run = ends_by_itself = True

    def __init__(
        self,
        execution: Execution,
        step: StepDefinition,
        items: Sequence[Any],
        *,
        concurrency: int,
        tolerate: int,
        enough: int | None,
    ) -> None:
        if concurrency < 1 or tolerate < 0 or (enough is not None and enough < 0):
            raise InvalidValue("a map needs concurrency ≥ 1, tolerate ≥ 0 and enough ≥ 0")
        if step.queue is not None:
            raise WorkflowMisuse(
                f"step {step.name!r} has a queue, and map() executes items in the process that drives the run. Remove "
                f"the queue, or await the step for each item: asyncio.gather(*map({step.name}, …))"
            )
        if step.at_most_once:
            raise WorkflowMisuse(
                f"step {step.name!r} is at_most_once, and map() executes items again that a crash has "
                "interrupted. Await the step for each item instead"
            )
        self.name = f"map:{step.name}"
        self.step = step
        self.is_undoable = step.is_undoable
        self.is_resumed = False
        """Whether another process has executed it before: items without an outcome may have run."""
        self.items = list(items)
        self.concurrency = concurrency
        self.results: dict[int, Raw] = {}
        self.failed: dict[int, str] = {}
        self._details: dict[int, list[ErrorDetails]] = {}
        self.allowed = 0
        self.attempt = 1
        self.lost: list[int] = []
        self._cut_off: list[int] = []
        self._alone = False
        self._lease_loss_count = 0
        self._running: list[int] | None = None
        self._tolerate = tolerate
        self._enough = len(self.items) if enough is None else min(enough, len(self.items))
        self._execution = execution

    def intent(self) -> Payload:
        return MapStarted(item_count=len(self.items))

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case MapStarted():
                self.allowed = self._window(0)
                self._launch()
            case MapProgress() as progress:
                self.allowed = max(self.allowed, progress.started)
                self.results.update(zip(progress.completed, progress.results, strict=True))
                self.failed.update(progress.failed)
                for (index, _), details in zip(progress.failed, progress.details, strict=False):
                    self._details[index] = details
                self._register(progress.completed)
                if progress.running is not None:
                    self._running = progress.running
                    return False
                if progress.interrupted:
                    self._alone = progress.alone
                    self._cut_off.append(self.attempt)
                    self.attempt += 1
                else:
                    self._cut_off.clear()
                if not progress.completed and not progress.failed:
                    self.is_resumed = True
                    self._launch()
            case StepLost(attempt=attempt, survived=survived):
                self.lost.append(attempt)
                self._lease_loss_count += not survived
            case MapCompleted():
                self._register_unknown(if_started=self.is_resumed)
                self.resolve(self._values())
                return True
            case OperationAbandoned():
                self._register_unknown(if_started=self.is_resumed)
                return True
            case MapFailedEvent(failed_index=index, error=error, details=details):
                self._register_unknown(if_started=self.is_resumed)
                self.reject(with_place(MapFailed(self.key, index, error), details))
                return True
        return False

    def _launch(self) -> None:
        if not self._execution.reads_history:
            self._execution.launches.append(self)

    def _register(self, completed: Sequence[int]) -> None:
        if self.step.compensation is None:
            return
        signature, codec = self.step.signature, self._execution.codec
        for index in completed:
            result = signature.decode_result(codec, self.results[index])
            self._execution.compensations.register(f"{self.key}[{index}]", self.step, result)

    def on_cut_off(self, execution: Execution) -> None:
        self._register_unknown(if_started=True)

    def _register_unknown(self, *, if_started: bool) -> None:
        """Register the items that may have started and have no outcome."""
        if if_started and self.is_undoable:
            undoing = self._execution.compensations
            for index in self.open_items:
                item = self.items[index]
                undoing.register_unknown(f"{self.key}[{index}]", self, self.step, (item,), {})

    def next_attempt(self) -> Payload:
        """The event with which another process resumes a map of which nothing was in flight."""
        return MapProgress(started=self.allowed)

    @property
    def interruptions(self) -> int:
        """How often its process crashed since the last item was done, if it crashed now."""
        cut_off = [*self._cut_off, self.attempt]
        return len(cut_off) - min(sum(one in self.lost for one in cut_off), MAX_LOST)

    def may_be_lost(self, attempt: int) -> bool:
        """Whether the end of that attempt is unknown. All that a process executes of a map between two interruptions
        counts as one attempt."""
        return attempt <= self.attempt and attempt not in self.lost

    @property
    def is_suspect(self) -> bool:
        """Whether it may have crashed its process and is resumed."""
        is_given_up = is_crash_cause(self.interruptions, alone=self._alone)
        return self.interruptions >= SUSPECT_AFTER and not is_given_up

    def after_interruption(self, *, alone: bool = False) -> Payload:
        """After a crash while items ran: the event that resumes them, or the failure of the map."""
        if not is_crash_cause(self.interruptions, alone=self._alone) or not self.open_items:
            return MapProgress(started=self.allowed, interrupted=True, alone=alone)
        text = "the process died again and again while items ran"
        if self._lease_loss_count > MAX_LOST:
            text = lease_loss_failure(self.attempt, self._lease_loss_count).error
        return MapFailedEvent(failed_index=min(self.open_items), error=text)

    @property
    def open_items(self) -> list[int]:
        """The items that may be executing and have no outcome yet."""
        return [
            index
            for index in (range(self.allowed) if self._running is None else self._running)
            if index not in self.results and index not in self.failed
        ]

    def progress(
        self, results: dict[int, Raw], failed: dict[int, str], details: list[list[ErrorDetails]]
    ) -> MapProgress:
        """The event that records outcomes of items; `details` are the errors of those in `failed`."""
        done = len(self.results) + len(self.failed) + len(results) + len(failed)
        return MapProgress(
            started=self._window(done),
            completed=list(results),
            results=list(results.values()),
            failed=list(failed.items()),
            details=details,
        )

    def last_items(self, running: Iterable[int]) -> MapProgress:
        """The event that records that no further item starts, and which ones are awaited."""
        return MapProgress(started=self.allowed, running=sorted(running))

    @property
    def is_over(self) -> bool:
        """Whether the recorded outcomes decide how it ends."""
        done = len(self.results) + len(self.failed)
        return (
            len(self.failed) > self._tolerate
            or len(self.results) >= self._enough
            or done == len(self.items)
        )

    def ending(self) -> Payload | None:
        """The event that ends the map, by the recorded outcomes; None while it runs."""
        if not self.is_over:
            return None
        if len(self.failed) > self._tolerate:
            index = list(self.failed)[self._tolerate]
            return MapFailedEvent(
                failed_index=index, error=self.failed[index], details=self._details.get(index, [])
            )
        return MapCompleted(results=self._recorded())

    def _window(self, done: int) -> int:
        return min(len(self.items), done + self.concurrency * AHEAD)

    def _values(self) -> list[Any]:
        signature, codec = self.step.signature, self._execution.codec
        values: list[Any] = []
        for index in range(len(self.items)):
            if index in self.results:
                values.append(signature.decode_result(codec, self.results[index]))
            elif index in self.failed:
                failed = StepFailed(f"{self.key}[{index}]", self.failed[index], 1)
                values.append(with_place(failed, self._details.get(index, [])))
            else:
                values.append(None)
        return values

    def _recorded(self) -> Raw:
        """The results as one array; if that is large, as facts of a thousand results each."""
        null = Raw(b"null")
        results = [self.results.get(index, null) for index in range(len(self.items))]
        if sum(map(len, results)) <= INLINE_BYTES:
            return Raw(msgspec.json.encode(results))
        hashes = []
        for portion in portions(dict(enumerate(results)), SEGMENT_ITEMS):
            fact = Fact.of(msgspec.json.encode(list(portion.values())))
            self._execution.pending.facts.append(fact)
            hashes.append(fact.hash)
        return Raw(msgspec.json.encode({"~segments": hashes}))


def portions(results: dict[int, Raw], most: int = sys.maxsize) -> Iterator[dict[int, Raw]]:
    """Results by index in parts, each small enough for one event if its items are. Yields at least one part."""
    portion: dict[int, Raw] = {}
    size = 0
    for index, result in results.items():
        if portion and (len(portion) >= most or size + len(result) > PORTION_BYTES):
            yield portion
            portion, size = {}, 0
        portion[index] = result
        size += len(result)
    yield portion
