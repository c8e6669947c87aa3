"""What became of a run or a step, told to whoever awaits it."""

from __future__ import annotations

import asyncio

from outlast.errors.root import OutlastError


class RunError(OutlastError):
    """Something of a run went wrong, as its history records it."""


class StepFailed(RunError):
    """A step failed and is not tried again. Raised where the workflow awaits the step. The error
    is plain data: `error_type` is the name of what was raised, never an object built from it."""

    def __init__(self, step: str, error: str, attempts: int, error_type: str = "") -> None:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        what = f"{error_type}: {error}" if error_type else error
        super().__init__(f"step {step!r} failed after {tries}: {what}")
        self.step = step
        self.error = error
        self.error_type = error_type
        self.attempts = attempts


class ScopeFailed(RunError):
    """The code in a scope raised. Recorded, so that a replay raises the same."""

    def __init__(self, scope: str, error: str, error_type: str = "") -> None:
        super().__init__(f"{scope!r} failed: {error_type}: {error}")
        self.scope = scope
        self.error = error
        self.error_type = error_type


class ChildFailed(RunError):
    """A child run failed or was cancelled. Raised where the parent awaits it."""

    def __init__(self, child: str, error: str, key: str = "") -> None:
        super().__init__(f"child {child!r} failed: {error}")
        self.child = child
        self.error = error
        self.key = key


class MapFailed(RunError):
    """More items of a map failed than its policy tolerates."""

    def __init__(self, key: str, index: int, error: str) -> None:
        super().__init__(f"{key!r} failed at item {index}: {error}")
        self.key = key
        self.index = index
        self.error = error


class SignalTimeout(RunError, TimeoutError):
    """The signal did not come in time."""

    def __init__(self, signal: str) -> None:
        super().__init__(f"signal {signal!r} did not come in time")
        self.signal = signal


class UpdateFailed(RunError):
    """The run answered an update with an error, or ended without an answer."""

    def __init__(self, run_id: str, update: str, error: str) -> None:
        super().__init__(f"update {update!r} of run {run_id!r} failed: {error}")
        self.run_id = run_id
        self.update = update
        self.error = error


class StepTimeout(RunError, TimeoutError):
    """An attempt of a step took longer than the step allows."""


class RunFailed(RunError):
    """The run ended in an error. Raised where its result is awaited."""

    def __init__(self, run_id: str, status: str, error: str) -> None:
        super().__init__(f"run {run_id!r} {status}: {error}")
        self.run_id = run_id
        self.status = status
        self.error = error


class RunCancelled(RunFailed):
    """The run was cancelled or terminated. Raised where its result is awaited."""


class Mismatch(RunError):
    """History and code disagree. The run is parked and goes on once the code is mended."""

    def __init__(self, run_id: str, *, recorded: str, asked: str, at: str = "") -> None:
        super().__init__(
            f"run {run_id!r} cannot be replayed with this code.\n"
            f"  history: {recorded}\n"
            f"  code:    {asked}\n"
            + (f"  at:      {at}\n" if at else "")
            + "Bring back what was there, or let runs that are under way go the old way with "
            "`if outlast.patched(…):`; then resume the run"
        )
        self.run_id = run_id
        self.recorded = recorded
        self.asked = asked
        self.at = at


class RunEnding(asyncio.CancelledError):
    """Raised by outlast calls in code of a run that has failed or was cancelled, once what it did is
    being undone, or if it goes on for too long before that. A cancellation, so that code which
    catches an `Exception` ends all the same; there is nothing to do about it but to return."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r} has failed or was cancelled: its code can begin nothing more. Call "
            "what is to be done on the way out from a `finally` block, and let CancelledError pass"
        )
        self.run_id = run_id


class ContinueAsNew(BaseException):
    """Ends this life of a run and begins the next with new input: `outlast.continue_as_new`.
    Not an error, and not an `Exception`, so that a workflow's ``except`` does not stop it."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("continue as new")
        self.args_ = args
        self.kwargs_ = kwargs
