"""A step on another machine: a task in a queue, in the same commit as the attempt's record.

Any worker that has the step's code claims the task and does it. What became of it comes back
through the run's inbox, in the same atomic step that removes the task. A worker that dies costs its
lease: the task is handed out again, and its deliveries are counted.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.definitions.retry import MAX_LOST
from outlast.engine.operations.step import INTERRUPTED, StepCall, silence_of, stop_of
from outlast.model.event import Event
from outlast.model.payloads import (
    MapProgress,
    OperationAbandoned,
    Payload,
    StepFailedEvent,
    StepStarted,
)
from outlast.model.task import Task

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution


class StepReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker tells the run of an attempt: how it ended, or how far it is. Or what an earlier life
    tells the one that retries it, `life`: then it is of no attempt that this one has begun, `items` are
    those of a map that are done, and one with an `input` is of a call that has yet to be made."""

    attempt: int = 0
    output: Raw | None = None
    failed: StepFailedEvent | None = None
    progress: Raw | None = None
    duration_ns: int = 0
    items: MapProgress | None = None
    life: str = ""
    input: Raw | None = None


class QueuedStepCall(StepCall):
    """One call of a step that some worker does. The run leaves memory meanwhile: the task is in the
    queue, and its end is sent to the inbox."""

    wait_kind = in_flight = "task"

    def __init__(
        self, execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
    ) -> None:
        super().__init__(execution, step, args, kwargs, name)
        self._line = step.line(self.args, self.kwargs)

    @property
    def may_run(self) -> bool:  # type: ignore[override]
        """Whether its outcome matters to a run that has left it: it can be undone, or must not be
        repeated. If not, its task is taken back: it may wait in its queue for long."""
        return (self.is_undoable or self.step.at_most_once) and super().may_run

    def may_be_lost(self, attempt: int) -> bool:
        """Whether somebody may be at that attempt, or was: it stays the same from worker to worker."""
        return attempt == self.attempt and self.due is None

    def after_report(self, failed: StepFailedEvent, now: datetime) -> StepFailedEvent:
        """What to record when a worker tells of a failure. It gives a task up that was handed out too
        often; if workers have lost it that live, it is tried anew."""
        given_up = failed.error_type == INTERRUPTED and not failed.will_retry
        was_lost = self.attempt in self.lost and len(self.lost) <= MAX_LOST
        if given_up and was_lost and not self.step.at_most_once:
            return stop_of(self.attempt, now)
        if given_up and self.silences > MAX_LOST:
            return silence_of(self.attempt, self.silences)
        return self.last_word(failed)

    def apply(self, event: Event, payload: Payload) -> bool:
        answered = super().apply(event, payload)
        if isinstance(payload, StepStarted):
            self._execution.launches.remove(self)  # it is nothing for this process
        return answered

    def enact(self, execution: Execution, said: Payload) -> None:
        if isinstance(said, StepStarted):
            execution.draft.tasks.append(self._task(execution))
        elif isinstance(said, OperationAbandoned) and not said.awaited:
            self.take_back(execution)

    def _task(self, execution: Execution) -> Task:
        metadata = {
            "life": execution.life_of(self),
            "attempt": str(self.attempt),
            "failures": str(self.failures),
        }
        if self.progress is not None:
            metadata["progress"] = bytes(self.progress).decode()
        assert self.step.queue is not None
        return Task(
            id=self._task_id(execution),
            queue=queue_of(self.step.queue, self.step.name),
            name=self.step.name,
            run_id=execution.run_id,
            uid=execution.uid,
            step=self.key,
            input=self.input,
            metadata=metadata,
            key=self._line[0],
            priority=self._line[1],
        )

    def take_back(self, execution: Execution) -> None:
        """Nothing is to be done for it any more: its outcome is known, or its code has gone."""
        draft, id = execution.draft, self._task_id(execution)
        if all(task.id != id for task in draft.tasks):
            draft.drops.append(id)
        draft.tasks = [task for task in draft.tasks if task.id != id]

    def _task_id(self, execution: Execution) -> str:
        name = f"{execution.uid}/{self.key}/{self.attempt}"
        return hashlib.sha256(name.encode()).hexdigest()[:32]


def take_back_left(execution: Execution, now: datetime) -> None:
    """Of what is about to be handed out, keep what a run that fails has left meanwhile: no worker has
    heard of it yet, so it never begins."""
    for task in list(execution.draft.tasks):
        call = execution.open.get(task.step)
        if isinstance(call, QueuedStepCall) and call.is_awaited and not call.has_begun:
            call.take_back(execution)
            execution.deliver(call.not_begun(), now, key=call.key)


def queue_of(queue: str, step: str) -> str:
    """Where the tasks of a step wait. Each step of a queue has its own, so that a worker is only
    handed what it has the code of."""
    return f"{queue}/{step}"


def step_call(
    execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
) -> StepCall:
    """The call of a step, here or wherever its queue is served."""
    kind = StepCall if step.queue is None else QueuedStepCall
    return kind(execution, step, args, kwargs, name)
