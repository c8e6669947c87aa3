"""A map: one step over many items, as one record and not as one per item.

History says how far bodies may have begun and, with each flush, which items are done and with what
result. The results come in the order of the items, whatever the order in which they were done.
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
from outlast.engine.operations.step import is_cause, silence_of
from outlast.errors import InvalidValue, MapFailed, StepFailed, WorkflowMisuse
from outlast.model.event import Event
from outlast.model.payloads import (
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
"""Results that go into one record, which has a limit: items may be large, and come together."""
AHEAD = 4
"""StepExecutor may begin this many times the concurrency beyond what has been reported, so that one
commit announces many of them."""


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
                f"step {step.name!r} has a queue: map() does its items where the run is. Give the "
                f"step no queue, or await it for each item: asyncio.gather(*map({step.name}, …))"
            )
        if step.at_most_once:
            raise WorkflowMisuse(
                f"step {step.name!r} is at_most_once: map() begins items again that a crash has cut "
                "off. Await the step for each item instead"
            )
        self.name = f"map:{step.name}"
        self.step = step
        self.is_undoable = step.is_undoable
        self.is_taken_up = False
        """Whether another process has begun with it before: items may have run that have no outcome."""
        self.items = list(items)
        self.concurrency = concurrency
        self.results: dict[int, Raw] = {}
        self.failed: dict[int, str] = {}
        self.allowed = 0
        self.attempt = 1
        self.lost: list[int] = []
        self._cut_off: list[int] = []
        self._alone = False
        self._silences = 0
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
                self._execution.launches.append(self)
            case MapProgress() as progress:
                self.allowed = max(self.allowed, progress.started)
                self.results.update(zip(progress.completed, progress.results, strict=True))
                self.failed.update(progress.failed)
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
                    self.is_taken_up = True
                    self._execution.launches.append(self)  # taken up again by another process
            case StepLost(attempt=attempt, survived=survived):
                self.lost.append(attempt)
                self._silences += not survived
            case MapCompleted():
                self._register_unknown(if_begun=self.is_taken_up)
                self.resolve(self._values())
                return True
            case OperationAbandoned():
                self._register_unknown(if_begun=self.is_taken_up)
                return True
            case MapFailedEvent(failed_index=index, error=error):
                self._register_unknown(if_begun=self.is_taken_up)
                self.reject(MapFailed(self.key, index, error))
                return True
        return False

    def _register(self, completed: Sequence[int]) -> None:
        if self.step.compensation is None:
            return
        signature, codec = self.step.signature, self._execution.codec
        for index in completed:
            result = signature.decode_result(codec, self.results[index])
            self._execution.undoing.register(f"{self.key}[{index}]", self.step, result)

    def cut_off(self, execution: Execution) -> None:
        self._register_unknown(if_begun=True)

    def _register_unknown(self, *, if_begun: bool) -> None:
        """The items that may have begun and have no outcome."""
        if if_begun and self.is_undoable:
            undoing = self._execution.undoing
            for index in self.open_items:
                item = self.items[index]
                undoing.register_unknown(f"{self.key}[{index}]", self, self.step, (item,), {})

    def next_attempt(self) -> Payload:
        """What to record when a map is taken up again that nothing was under way for."""
        return MapProgress(started=self.allowed)

    @property
    def interruptions(self) -> int:
        """How often its process has died since items were done last, if it has ended that way now."""
        cut_off = [*self._cut_off, self.attempt]
        return len(cut_off) - min(sum(one in self.lost for one in cut_off), MAX_LOST)

    def may_be_lost(self, attempt: int) -> bool:
        """Whether nobody knows the end of what was begun then. What a process does with a map between
        two interruptions counts as one attempt."""
        return attempt <= self.attempt and attempt not in self.lost

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what its process died of, and is to be taken up again."""
        is_given_up = is_cause(self.interruptions, alone=self._alone)
        return self.interruptions >= SUSPECT_AFTER and not is_given_up

    def after_interruption(self, *, alone: bool = False) -> Payload:
        """What to record when the process died while items ran: that they go on, or the end."""
        if not is_cause(self.interruptions, alone=self._alone) or not self.open_items:
            return MapProgress(started=self.allowed, interrupted=True, alone=alone)
        text = "the process died again and again while items ran"
        if self._silences > MAX_LOST:
            text = silence_of(self.attempt, self._silences).error
        return MapFailedEvent(failed_index=min(self.open_items), error=text)

    @property
    def open_items(self) -> list[int]:
        """The items whose bodies may run now and have no outcome yet."""
        return [
            index
            for index in (range(self.allowed) if self._running is None else self._running)
            if index not in self.results and index not in self.failed
        ]

    def progress(self, results: dict[int, Raw], failed: dict[int, str]) -> MapProgress:
        """What to record of outcomes that have come in."""
        done = len(self.results) + len(self.failed) + len(results) + len(failed)
        return MapProgress(
            started=self._window(done),
            completed=list(results),
            results=list(results.values()),
            failed=list(failed.items()),
        )

    def last_items(self, running: Iterable[int]) -> MapProgress:
        """What to record when nothing more begins, and these are awaited."""
        return MapProgress(started=self.allowed, running=sorted(running))

    @property
    def is_over(self) -> bool:
        """Whether what is recorded decides how it ends."""
        done = len(self.results) + len(self.failed)
        return (
            len(self.failed) > self._tolerate
            or len(self.results) >= self._enough
            or done == len(self.items)
        )

    def ending(self) -> Payload | None:
        """How the map ends, given what is recorded; None while it goes on."""
        if not self.is_over:
            return None
        if len(self.failed) > self._tolerate:
            index = list(self.failed)[self._tolerate]
            return MapFailedEvent(failed_index=index, error=self.failed[index])
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
                values.append(StepFailed(f"{self.key}[{index}]", self.failed[index], 1))
            else:
                values.append(None)
        return values

    def _recorded(self) -> Raw:
        """The results in one array; if that is large, in facts of a thousand each."""
        null = Raw(b"null")
        results = [self.results.get(index, null) for index in range(len(self.items))]
        if sum(map(len, results)) <= INLINE_BYTES:
            return Raw(msgspec.json.encode(results))
        hashes = []
        for portion in portions(dict(enumerate(results)), SEGMENT_ITEMS):
            fact = Fact.of(msgspec.json.encode(list(portion.values())))
            self._execution.draft.facts.append(fact)
            hashes.append(fact.hash)
        return Raw(msgspec.json.encode({"~segments": hashes}))


def portions(results: dict[int, Raw], most: int = sys.maxsize) -> Iterator[dict[int, Raw]]:
    """Results by index in parts, each small enough for one record if its items are. Always one."""
    portion: dict[int, Raw] = {}
    size = 0
    for index, result in results.items():
        if portion and (len(portion) >= most or size + len(result) > PORTION_BYTES):
            yield portion
            portion, size = {}, 0
        portion[index] = result
        size += len(result)
    yield portion
