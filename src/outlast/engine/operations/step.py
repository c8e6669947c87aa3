"""A step: its function is called outside the workflow, and the outcome is recorded.

An attempt is counted before it runs: ``step.started`` is durable first. It ends with ``step.completed``, with
``step.failed`` or, if its process crashes, with no event. That is an *interruption*; after a few of them the step
counts as the cause of the crashes and fails. A process that lost its lease and lives reports it (``step.lost``),
and that attempt is not an interruption.

A *queued step* runs in a task worker. Its task is created in the commit that records the attempt. The worker sends
the outcome to the run's inbox in the same atomic call that removes the task. If the worker crashes, the lease of
the task expires and the queue delivers it again; deliveries are counted.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.definitions.raised import declared_kind, kind_named, pack, unpack
from outlast.engine.definitions.retry import (
    MAX_INTERRUPTIONS,
    MAX_LOST,
    MAX_SHARED,
    SUSPECT_AFTER,
    name_of,
)
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import details_of, text_of, with_place
from outlast.errors import OutlastError, StepFailed
from outlast.model.event import Event
from outlast.model.payloads import (
    MapProgress,
    OperationAbandoned,
    Payload,
    StepCompleted,
    StepFailedEvent,
    StepLost,
    StepProgress,
    StepStarted,
)
from outlast.model.run import WaitKind
from outlast.model.run_contents import Task
from outlast.ports.codec import Codec

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

INTERRUPTED = "Interrupted"
LEASE_LOST = "LeaseLost"
UNKNOWN_ENDS = frozenset({INTERRUPTED, LEASE_LOST, "StepTimeout"})
"""The error types of attempts that may have had their effect."""


def step_call(
    execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
) -> StepCall:
    """The operation for one call of a step: local, or queued if the step has a queue."""
    kind = StepCall if step.queue is None else QueuedStepCall
    return kind(execution, step, args, kwargs, name)


class StepCall(Operation):
    """One call of a step, over all its attempts. Between two attempts it is only due at a moment, so the run may
    leave memory."""

    ends_by_itself = True
    is_local = True
    """Whether the engine that drives the run executes it."""
    attempt_wait_kind: WaitKind | None = None
    """The run's wait kind while an attempt is open."""
    attempt = failures = stops = 0
    alone = False
    """Whether the open attempt started without other suspects beside it."""
    lease_loss_count = 0
    """How often its process lost its lease and lived."""
    lost: tuple[int, ...] = ()
    """The attempts whose process lost its lease and lives."""
    progress: Raw | None = None
    value: Any = UNSET
    """The result as a replay would decode it, if this process executed the step."""
    _ended: tuple[int, ...] = ()
    _is_unknown = False
    """Whether an attempt ended without saying whether it had its effect."""
    _was_stopped = False

    def __init__(
        self, execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
    ) -> None:
        self.name = name or step.name
        self.step = step
        self._execution = execution
        # The step function gets what a replay would decode. It cannot change the workflow's own objects, and a
        # value that does not survive encoding is rejected here.
        self.input, self.args, self.kwargs = step.signature.encode_call(
            execution.codec, args, kwargs
        )

    def intent(self) -> Payload:
        return StepStarted(attempt=1, input=self.input)

    def next_attempt(self) -> Payload:
        """The intent of a retry. The input is in the first intent."""
        return StepStarted(attempt=self.attempt + 1)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case StepCompleted():
                value = self._decoded(event) if self.value is UNSET else self.value
                if self.is_undoable:
                    self._execution.compensations.register(self.key, self.step, value)
                self.resolve(value)
                return True
            case StepStarted(attempt=attempt, alone=alone):
                self.alone = alone
                if attempt > 1 and attempt - 1 not in self._ended:
                    self._is_unknown = True
                self.attempt = attempt
                self._was_stopped = False
                self.due = None
                self.wait_kind = self.attempt_wait_kind
                if self._execution.reads_history:
                    asked = payload.input
                    # As text they differ if encrypted, or by the order of a set.
                    if asked and bytes(asked) != bytes(self.input) and not self.is_call_with(asked):
                        self._execution.on_changed_call(event)
                elif self.is_local:
                    self._execution.launches.append(self)
            case StepProgress(details=details):
                self.progress = details
            case StepLost(attempt=attempt, survived=survived):
                self.lost = (*self.lost, attempt)
                self.lease_loss_count += not survived
            case StepFailedEvent(
                will_retry=True, retry_at=retry_at, stopped=stopped, attempt=attempt
            ):
                self._ended = (*self._ended, attempt)
                self._was_stopped = stopped
                self._is_unknown |= stopped or payload.error_type in UNKNOWN_ENDS
                if stopped:
                    self.stops += 1
                else:
                    self.failures += 1
                self.due = retry_at or event.timestamp
                self.wait_kind = WaitKind.RETRY
            case StepFailedEvent(error_type=error_type):
                self._is_unknown |= error_type in UNKNOWN_ENDS
                if self._is_unknown:
                    self._register_unknown()
                self.reject(self._error(payload))
                return True
        return False

    def _error(self, failed: StepFailedEvent) -> BaseException:
        """What the workflow gets: `StepFailed` or, caused by it, the exception that the step declares in `raises`."""
        error = StepFailed(self.key, failed.error, failed.attempt, failed.error_type)
        with_place(error, failed.details if failed.error_type else [])
        kind = kind_named(self.step.raises, failed.kind) if failed.kind else None
        if kind is None:
            return error
        error.raised_as = unpack(self._execution.codec, kind, failed.raised, failed.error)
        error.raised_as.__cause__ = error
        return error.raised_as

    def _decoded(self, event: Event) -> Any:
        output = event.output or Raw(b"null")
        return self.step.signature.decode_result(self._execution.codec, output)

    @property
    def is_undoable(self) -> bool:  # type: ignore[override]
        step = self.step
        return step.compensation is not None or step.unknown_compensation is not None

    @property
    def may_run(self) -> bool:  # type: ignore[override]
        """Whether an attempt runs or was stopped half-way. An attempt that raised has ended."""
        return self.due is None or self._was_stopped

    def on_cut_off(self, execution: Execution) -> None:
        if self.may_run or self._is_unknown:
            self._register_unknown()

    def _register_unknown(self) -> None:
        compensations = self._execution.compensations
        compensations.register_unknown(self.key, self, self.step, self.args, self.kwargs)

    def is_call_with(self, input: Raw) -> bool:
        """Whether it was called with that input. Compared as values: the elements of a set have no order."""
        codec, signature = self._execution.codec, self.step.signature
        try:
            return signature.decode_call(codec, input) == signature.decode_call(codec, self.input)
        except OutlastError:
            return False

    def withdraw(self, execution: Execution) -> None:
        """Take back a call whose outcome is known before anything was executed for it."""
        return

    @property
    def may_have_started(self) -> bool:
        """Whether an attempt may have run before, when this one is about to be launched."""
        return self.attempt > 1

    # -- what to record of an attempt ---------------------------------------------------------

    def after_error(self, error: BaseException, now: datetime) -> StepFailedEvent:
        """The failure of an attempt that raised."""
        codec, failures = self._execution.codec, self.failures
        return self.final_failure(
            error_failure(self.step, error, self.attempt, failures, now, codec)
        )

    def after_earlier_life(self, failed: StepFailedEvent, now: datetime) -> StepFailedEvent:
        """The failure of a step that failed in an earlier life of the run, beside the one that is retried. The step
        is tried again unless it may have had its effect and is at_most_once."""
        again = not self.step.at_most_once
        if failed.stopped and not again:
            text = "it was cut off when its run failed: whether it was done is not known"
            failed = StepFailedEvent(
                error=text, error_type=INTERRUPTED, attempt=0, will_retry=False
            )
        again = again or failed.error_type not in UNKNOWN_ENDS
        again = again and not self.is_awaited
        return msgspec.structs.replace(
            failed, attempt=self.attempt, will_retry=again, retry_at=now if again else None
        )

    def final_failure(self, failed: StepFailedEvent) -> StepFailedEvent:
        """A failure as it is recorded: an abandoned step is not retried."""
        if not self.is_awaited or failed.stopped or not failed.will_retry:
            return failed
        if self._execution.bug is not None:
            return failed  # that it was abandoned is not recorded
        return msgspec.structs.replace(failed, will_retry=False, retry_at=None)

    def never_started(self) -> StepFailedEvent:
        """The failure of a step that the code abandoned before its first attempt started."""
        return StepFailedEvent(
            error="the run ended before it started",
            error_type="NotStarted",
            attempt=self.attempt,
            will_retry=False,
        )

    def after_stop(self, now: datetime) -> StepFailedEvent | None:
        """The failure of an attempt that is cut off because its process stops; None for an at_most_once step,
        whose outcome stays unknown."""
        return None if self.step.at_most_once else stop_failure(self.attempt, now)

    def after_interruption(self, *, alone: bool = False) -> Payload:
        """After a crash during an attempt: the next attempt, or the failure of the step."""
        if not self._is_given_up:
            return StepStarted(attempt=self.attempt + 1, alone=alone)
        if self.lease_loss_count > MAX_LOST:
            return lease_loss_failure(self.attempt, self.lease_loss_count)
        return interruption_failure(self.attempt, self.interruptions)

    @property
    def interruptions(self) -> int:
        """How many attempts were interrupted, if the open one was."""
        lost = min(len(self.lost), MAX_LOST)
        return self.attempt - self.failures - self.stops - lost

    def may_be_lost(self, attempt: int) -> bool:
        """Whether the end of that attempt is unknown. It may be the latest: the next attempt of a suspect waits.
        It never runs in this process, because each attempt starts under one claim."""
        return attempt <= self.attempt and attempt not in self._ended and attempt not in self.lost

    @property
    def is_suspect(self) -> bool:
        """Whether it may have crashed its process and is tried again."""
        return self.interruptions >= SUSPECT_AFTER and not self._is_given_up

    @property
    def _is_given_up(self) -> bool:
        """Whether it must not be tried again: it crashed its process too often, or is at_most_once."""
        return self.step.at_most_once or is_crash_cause(self.interruptions, alone=self.alone)


class QueuedStepCall(StepCall):
    """One call of a step that a task worker executes. The run leaves memory meanwhile."""

    is_local = False
    wait_kind = attempt_wait_kind = WaitKind.TASK

    def __init__(
        self, execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
    ) -> None:
        super().__init__(execution, step, args, kwargs, name)
        self._queue_position = step.queue_position(self.args, self.kwargs)

    @property
    def may_run(self) -> bool:  # type: ignore[override]
        """Whether its outcome matters after the code abandoned it: it can be undone, or is at_most_once. If not, its
        task is withdrawn, because it may wait in its queue for long."""
        return (self.is_undoable or self.step.at_most_once) and super().may_run

    def may_be_lost(self, attempt: int) -> bool:
        """Whether a worker may have that attempt, or had it. The attempt stays the same from worker to worker."""
        return attempt == self.attempt and self.due is None

    def after_report(self, failed: StepFailedEvent, now: datetime) -> StepFailedEvent:
        """The failure to record when a worker reports one. A worker gives up a task that was delivered too often;
        if live workers lost it, the step is tried again."""
        given_up = failed.error_type == INTERRUPTED and not failed.will_retry
        was_lost = self.attempt in self.lost and len(self.lost) <= MAX_LOST
        if given_up and was_lost and not self.step.at_most_once:
            return stop_failure(self.attempt, now)
        if given_up and self.lease_loss_count > MAX_LOST:
            return lease_loss_failure(self.attempt, self.lease_loss_count)
        return self.final_failure(failed)

    def on_recorded(self, execution: Execution, payload: Payload) -> None:
        if isinstance(payload, StepStarted):
            execution.pending.tasks.append(self._task(execution))
        elif isinstance(payload, OperationAbandoned) and not payload.awaited:
            self.withdraw(execution)

    def _task(self, execution: Execution) -> Task:
        metadata = {
            "life": execution.life_of(self),
            "attempt": str(self.attempt),
            "failures": str(self.failures),
        }
        if self.progress is not None:
            metadata["progress"] = bytes(self.progress).decode()
        assert self.step.queue is not None
        key, priority = self._queue_position
        return Task(
            id=self._task_id(execution),
            queue=queue_of(self.step.queue, self.step.name),
            name=self.step.name,
            run_id=execution.run_id,
            uid=execution.uid,
            step=self.key,
            input=self.input,
            metadata=metadata,
            key=key,
            priority=priority,
        )

    def withdraw(self, execution: Execution) -> None:
        pending, id = execution.pending, self._task_id(execution)
        if all(task.id != id for task in pending.tasks):
            pending.drops.append(id)
        pending.tasks = [task for task in pending.tasks if task.id != id]

    def _task_id(self, execution: Execution) -> str:
        name = f"{execution.uid}/{self.key}/{self.attempt}"
        return hashlib.sha256(name.encode()).hexdigest()[:32]


def withdraw_abandoned(execution: Execution, now: datetime) -> None:
    """Withdraw the tasks in the pending commit whose calls a failing run has abandoned since: no worker has got them,
    so they never start."""
    for task in list(execution.pending.tasks):
        call = execution.open.get(task.step)
        if isinstance(call, QueuedStepCall) and call.is_awaited and not call.may_have_started:
            call.withdraw(execution)
            execution.deliver(call.never_started(), now, key=call.key)


class LeaseLossReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sent to the `life` of a run by a process that lost its claim: which attempts of steps and maps were cut off, and
    which never started."""

    life: str
    attempts: dict[str, int]
    not_started: dict[str, int] = {}


class StepReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a task worker reports of an attempt: its outcome or its progress. `life` is the one that requested the step.
    An earlier life sends one too, to the `life` that retries the run: its attempt is 0, `items` are the finished items
    of a map, and `input` is set if the call has yet to be made again."""

    life: str
    attempt: int = 0
    output: Raw | None = None
    failed: StepFailedEvent | None = None
    progress: Raw | None = None
    duration_ns: int = 0
    items: MapProgress | None = None
    input: Raw | None = None


def queue_of(queue: str, step: str) -> str:
    """The queue in which the tasks of a step wait. Each step has its own, so that a worker only gets tasks whose
    code it has."""
    return f"{queue}/{step}"


def error_failure(
    step: StepDefinition,
    error: BaseException,
    attempt: int,
    failures: int,
    now: datetime,
    codec: Codec,
) -> StepFailedEvent:
    """The failure of an attempt that raised, after `failures` earlier ones."""
    wait = step.retry.wait(failures + 1, error)
    kinds = getattr(error, "kinds", ())  # of an error from another process
    raised, *causes = details_of(error)
    kind = declared_kind(step.raises, error) if step.raises else None
    return StepFailedEvent(
        error=text_of(error),
        error_type=kinds[0].rpartition(".")[2] if kinds else type(error).__name__,
        attempt=attempt,
        will_retry=wait is not None,
        retry_at=None if wait is None else now + wait,
        frames=raised.frames,
        causes=causes,
        kind="" if kind is None else name_of(kind),
        raised=[] if kind is None else pack(codec, error),
    )


def stop_failure(attempt: int, now: datetime) -> StepFailedEvent:
    """The failure of an attempt whose process was stopped in good order: it is retried and not counted."""
    return StepFailedEvent(
        error="its process was stopped",
        error_type="Stopped",
        attempt=attempt,
        will_retry=True,
        retry_at=now,
        stopped=True,
    )


def is_crash_cause(interruptions: int, *, alone: bool) -> bool:
    """Whether a step that was interrupted this often is the cause. One that ran alone is blamed sooner."""
    return interruptions >= (MAX_INTERRUPTIONS if alone else MAX_SHARED)


def lease_loss_failure(attempt: int, times: int) -> StepFailedEvent:
    """The failure of a step during which its live process lost the lease too often."""
    return StepFailedEvent(
        error=f"its process lived and lost its lease while it ran ({times} times): it held the interpreter for "
        "longer than its lease, or the store could not be reached. Give it process=True, or the app a longer lease",
        error_type=LEASE_LOST,
        attempt=attempt,
        will_retry=False,
    )


def interruption_failure(attempt: int, times: int) -> StepFailedEvent:
    """The failure of a step whose process crashed too often."""
    return StepFailedEvent(
        error=f"the process died while it ran ({times} times)",
        error_type=INTERRUPTED,
        attempt=attempt,
        will_retry=False,
    )
