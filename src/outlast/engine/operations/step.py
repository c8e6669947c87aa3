"""A step: the user's function is called outside the workflow, and its outcome is recorded.

Attempts are counted before they run: ``step.started`` is durable first. An attempt ends with
``step.completed``, with ``step.failed``, or, if the process dies, with nothing: that is an
interruption, and after a few of them the step itself is taken for the cause. One whose process has
only lost its lease, and says so (``step.lost``), is none.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from outlast.engine.definitions.definition import StepDefinition
from outlast.engine.definitions.retry import MAX_INTERRUPTIONS, MAX_LOST, MAX_SHARED, SUSPECT_AFTER
from outlast.engine.operations.operation import Operation
from outlast.engine.replay.error_text import text_of
from outlast.engine.replay.source_location import frames_of
from outlast.errors import OutlastError, StepFailed
from outlast.model.event import Event
from outlast.model.payloads import (
    Payload,
    StepCompleted,
    StepFailedEvent,
    StepLost,
    StepProgress,
    StepStarted,
)

if TYPE_CHECKING:
    from outlast.engine.replay.execution import Execution

INTERRUPTED = "Interrupted"
LEASE_LOST = "LeaseLost"
UNKNOWN_ENDS = frozenset({INTERRUPTED, LEASE_LOST, "StepTimeout"})
"""The errors of attempts that may have done what they were to do."""


class StepCall(Operation):
    """One call of a step, over all its attempts. While it waits for the next one, it is due then and
    needs nobody meanwhile."""

    ends_by_itself = True
    in_flight: str | None = None
    """The kind of wait that an attempt is."""
    attempt = failures = stops = 0
    alone = False
    """Whether the attempt that is open began without other suspects beside it."""
    silences = 0
    """How often its process has lost its lease, and lived."""
    lost: tuple[int, ...] = ()
    """The attempts whose process has lost its lease, and lives."""
    progress: Raw | None = None
    value: Any = UNSET
    """Its result as a replay would see it, if it was done here."""
    _ended: tuple[int, ...] = ()
    _is_unknown = False
    """Whether an attempt has ended in a way that does not say what it did."""
    _was_stopped = False

    def __init__(
        self, execution: Execution, step: StepDefinition, args: Any, kwargs: Any, name: str = ""
    ) -> None:
        self.name = name or step.name
        self.step = step
        self._execution = execution
        # The body gets what a replay would decode, so that it cannot change the workflow's own
        # objects, and a value that does not survive the journey is refused here and now.
        self.input, self.args, self.kwargs = step.signature.encode_call(
            execution.codec, args, kwargs
        )

    def intent(self) -> Payload:
        return StepStarted(attempt=1, input=self.input)

    def next_attempt(self) -> Payload:
        """The intent of trying again: the input is in the first one."""
        return StepStarted(attempt=self.attempt + 1)

    def apply(self, event: Event, payload: Payload) -> bool:
        match payload:
            case StepCompleted():
                value = self._decoded(event) if self.value is UNSET else self.value
                self._execution.undoing.register(self.key, self.step, value)
                self.resolve(value)
                return True
            case StepStarted(attempt=attempt, alone=alone):
                self.alone = alone
                if attempt > 1 and attempt - 1 not in self._ended:
                    self._is_unknown = True
                self.attempt = attempt
                self._was_stopped = False
                self.due = None
                self.wait_kind = self.in_flight
                self._execution.launches.append(self)
            case StepProgress(details=details):
                self.progress = details
            case StepLost(attempt=attempt, survived=survived):
                self.lost = (*self.lost, attempt)
                self.silences += not survived
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
                self.wait_kind = "retry"
            case StepFailedEvent(error=error, error_type=error_type, attempt=attempt):
                self._is_unknown |= error_type in UNKNOWN_ENDS
                if self._is_unknown:
                    self._register_unknown()
                self.reject(StepFailed(self.key, error, attempt, error_type))
                return True
        return False

    def _decoded(self, event: Event) -> Any:
        output = event.output or Raw(b"null")
        return self.step.signature.decode_result(self._execution.codec, output)

    @property
    def is_undoable(self) -> bool:  # type: ignore[override]
        return self.step.is_undoable

    @property
    def may_run(self) -> bool:  # type: ignore[override]
        """Whether an attempt runs, or was stopped half-way: one that has raised has an end."""
        return self.due is None or self._was_stopped

    def cut_off(self, execution: Execution) -> None:
        if self.may_run or self._is_unknown:
            self._register_unknown()

    def _register_unknown(self) -> None:
        undoing = self._execution.undoing
        undoing.register_unknown(self.key, self, self.step, self.args, self.kwargs)

    def after_error(self, error: BaseException, now: datetime) -> StepFailedEvent:
        """What to record when an attempt has raised."""
        return self.last_word(failure_of(self.step, error, self.attempt, self.failures, now))

    def is_call_with(self, input: Raw) -> bool:
        """Whether it was called with that input. Compared as values: a set has no order of its own."""
        codec, signature = self._execution.codec, self.step.signature
        try:
            return signature.decode_call(codec, input) == signature.decode_call(codec, self.input)
        except OutlastError:
            return False

    def take_back(self, execution: Execution) -> None:
        """Its outcome is known before anything was done for it."""
        return

    def after_earlier(self, failed: StepFailedEvent, now: datetime) -> StepFailedEvent:
        """What to record when it has failed in an earlier life, beside what is retried: it is tried again,
        unless it may have been done and must not be repeated."""
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

    def last_word(self, failed: StepFailedEvent) -> StepFailedEvent:
        """A failure as it is recorded: what the code has left is not tried again."""
        if not self.is_awaited or failed.stopped or not failed.will_retry:
            return failed
        return msgspec.structs.replace(failed, will_retry=False, retry_at=None)

    @property
    def has_begun(self) -> bool:
        """Whether it may have begun, here or elsewhere, once it is about to be launched."""
        return self.attempt > 1

    def not_begun(self) -> StepFailedEvent:
        """What to record when the code has left it before its first attempt began."""
        return StepFailedEvent(
            error="the run ended before it began",
            error_type="NotBegun",
            attempt=self.attempt,
            will_retry=False,
        )

    def after_stop(self, now: datetime) -> StepFailedEvent | None:
        """What to record when an attempt is cut off because the process is to end; None if it
        must not be repeated, so that its end is not known."""
        return None if self.step.at_most_once else stop_of(self.attempt, now)

    @property
    def interruptions(self) -> int:
        """How often its process has died, if the attempt that is open now has ended that way."""
        lost = min(len(self.lost), MAX_LOST)
        return self.attempt - self.failures - self.stops - lost

    def may_be_lost(self, attempt: int) -> bool:
        """Whether that attempt is one that nobody knows the end of. It may be the last: a suspect's
        next one waits for its turn. It is never one that runs here: each is begun under one claim."""
        return attempt <= self.attempt and attempt not in self._ended and attempt not in self.lost

    @property
    def is_suspect(self) -> bool:
        """Whether it may be what its process died of, and is to be tried again."""
        return self.interruptions >= SUSPECT_AFTER and not self._is_given_up

    @property
    def _is_given_up(self) -> bool:
        """Whether it must not be tried again: it killed its process too often, or may run once only."""
        return self.step.at_most_once or is_cause(self.interruptions, alone=self.alone)

    def after_interruption(self, *, alone: bool = False) -> Payload:
        """What to record when the process died during an attempt: another one, or the end."""
        if not self._is_given_up:
            return StepStarted(attempt=self.attempt + 1, alone=alone)
        if self.silences > MAX_LOST:
            return silence_of(self.attempt, self.silences)
        return interruption_of(self.attempt, self.interruptions)


def failure_of(
    step: StepDefinition, error: BaseException, attempt: int, failures: int, now: datetime
) -> StepFailedEvent:
    """What to record when an attempt has raised, after so many that have failed before."""
    wait = step.retry.wait(failures + 1, error)
    kinds = getattr(error, "kinds", ())  # of an error from another process
    return StepFailedEvent(
        error=text_of(error),
        error_type=kinds[0].rpartition(".")[2] if kinds else type(error).__name__,
        attempt=attempt,
        will_retry=wait is not None,
        retry_at=None if wait is None else now + wait,
        frames=frames_of(error),
    )


def stop_of(attempt: int, now: datetime) -> StepFailedEvent:
    """What to record when an attempt was cut off in good order."""
    return StepFailedEvent(
        error="its process was stopped",
        error_type="Stopped",
        attempt=attempt,
        will_retry=True,
        retry_at=now,
        stopped=True,
    )


def is_cause(interruptions: int, *, alone: bool) -> bool:
    """Whether what was cut off so often is the cause: it was alone the last time, or it is enough."""
    return interruptions >= (MAX_INTERRUPTIONS if alone else MAX_SHARED)


def silence_of(attempt: int, times: int) -> StepFailedEvent:
    """What to record when a step has cost its process the lease too often, and no process died."""
    return StepFailedEvent(
        error=f"its process lived and lost its lease while it ran ({times} times): it held the interpreter for "
        "longer than its lease, or the store could not be reached. Give it process=True, or the app a longer lease",
        error_type=LEASE_LOST,
        attempt=attempt,
        will_retry=False,
    )


def interruption_of(attempt: int, times: int) -> StepFailedEvent:
    """What to record when the process died under a step too often."""
    return StepFailedEvent(
        error=f"the process died while it ran ({times} times)",
        error_type=INTERRUPTED,
        attempt=attempt,
        will_retry=False,
    )
