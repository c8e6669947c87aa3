"""Every error that outlast raises on purpose, grouped by what the caller should do next.

::

    OutlastError
    ├── UsageError                 fix the call; nothing was written
    │   ├── InvalidId                 an id that no store accepts
    │   ├── InvalidValue              an argument out of range, a bad cursor, a bad URL
    │   │   ├── InvalidQuery             a query that cannot be parsed
    │   │   └── AskUnnamed               an answer does not say which of several questions it is for
    │   ├── InvalidCommit             a commit that contradicts itself
    │   ├── PayloadError              a value that cannot be stored exactly
    │   │   ├── NotSerializable          no exact form: annotate it, or convert it
    │   │   ├── PayloadTooLarge          over the limit in bytes
    │   │   └── PayloadTooDeep           over the limit in nesting
    │   ├── Unsupported               this store does not declare that capability
    │   ├── MissingExtra              an optional package is not installed
    │   ├── Closed                    the store or queue was closed
    │   │   ├── StoreClosed
    │   │   └── QueueClosed
    │   └── WorkflowMisuse            workflow code did what only a step may do
    ├── Refused                    read again and decide; nothing was written
    │   ├── NotFound                  it does not exist (never a backend fault)
    │   ├── RunExists                 the id is taken by another run
    │   ├── Conflict                  another writer was first: expected and actual
    │   ├── DuplicateEvent            that event id is recorded already: its sequence
    │   ├── Fenced                    a newer claim owns the run or the task
    │   ├── RunClosed                 the run has ended
    │   ├── AlreadyAnswered           another answer to the question was first: who and when
    │   ├── AskClosed                 the run no longer asks the question
    │   ├── CodeMissing               no live worker has the code of the run
    │   ├── RunsOpen                  the tree has runs that have not ended: not deleted
    │   └── Moved                     the run continues in another store: ask there
    ├── TryAgain                   the same call may succeed later
    │   ├── Busy                      a lock is held; nothing was written
    │   ├── TimedOut                  the deadline passed; nothing was written
    │   ├── Unavailable               the database cannot be reached; nothing was written
    │   └── UnknownOutcome            it may have happened: compare `Commit.id`, then retry
    ├── RunError                   how a run or a step failed, raised where it is awaited
    │   ├── StepFailed                a step failed for good
    │   ├── ScopeFailed               a scope ended in an error
    │   ├── ChildFailed               a child ended in an error
    │   ├── MapFailed                 too many items of a map failed
    │   ├── SignalTimeout             the signal did not come in time
    │   ├── UpdateFailed              the run answered an update with an error
    │   ├── StepTimeout               an attempt took longer than its step allows
    │   ├── RunFailed                 the run ended in an error
    │   │   └── RunCancelled             the run was cancelled
    │   ├── RunParked                 the run waits for code that can continue it
    │   ├── Mismatch                  history and code disagree: the run is parked
    │   └── RemoteTraceback           never raised: the ``__cause__`` of those above, where they were raised
    └── StoreFault                 a retry does not help; an operator must act
        ├── Undecodable               stored bytes that are damaged
        ├── NotAStore                 the file or database is not an outlast store
        ├── SchemaTooNew              written by a newer outlast
        ├── UnsafeStorage             storage on which durability is not guaranteed
        ├── ReadOnlyStore             the database cannot be written
        └── StoreFull                 no space left

Errors of drivers and of the operating system are mapped to this tree in one file of each adapter
(`driver_errors.py`) and kept as ``__cause__``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime


class OutlastError(Exception):
    """The root of the tree: ``except OutlastError`` catches all that outlast raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default unpickling calls the class with the message alone, and most classes need more.
        # An error that cannot be unpickled breaks a whole process pool.
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[OutlastError], args: tuple[object, ...], state: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(OutlastError):
    """The call itself is wrong. Nothing was written; the message says how to correct it."""


class InvalidId(UsageError, ValueError):
    """An id that is empty, too long, or contains reserved characters."""


class InvalidValue(UsageError, ValueError):
    """An argument is out of range or malformed."""


class InvalidQuery(InvalidValue):
    """A query cannot be parsed, from `position` on."""

    def __init__(self, query: str, position: int, problem: str) -> None:
        super().__init__(f"{problem}\n  {query}\n  {' ' * position}^")
        self.query = query
        self.position = position
        self.problem = problem


class AskUnnamed(InvalidValue):
    """A value was sent to a run that asks several questions, or none, and does not name one. `open` has the ids of the
    open questions."""

    def __init__(self, run_id: str, open: Sequence[str]) -> None:
        asks = f"asks {len(open)} questions" if open else "asks nothing now"
        names = f": answer one of {', '.join(open)} by its id" if open else ""
        super().__init__(
            f"run {run_id!r} {asks}, and the answer does not name one{names}. "
            "`outlast asks ls` shows what is asked"
        )
        self.run_id = run_id
        self.open = list(open)


class InvalidCommit(UsageError, ValueError):
    """A commit contradicts itself, or a batch holds two commits of one run."""


class PayloadError(UsageError, ValueError):
    """A value cannot be stored exactly."""


class NotSerializable(PayloadError):
    """The value has no exact JSON form. The message says which part, and how to annotate it."""


class PayloadTooLarge(PayloadError):
    """The encoded value is larger than the limit."""


class PayloadTooDeep(PayloadError):
    """The value is nested deeper than the limit."""


class Unsupported(UsageError, NotImplementedError):
    """The store or queue does not declare this capability."""


class MissingExtra(UsageError, ImportError):
    """An optional dependency is not installed. The message names the extra to install."""


class Closed(UsageError):
    """The store or queue was closed before this call."""


class StoreClosed(Closed):
    """The store is closed. Open it again, or close it later."""


class QueueClosed(Closed):
    """The queue is closed."""


class WorkflowMisuse(UsageError, RuntimeError):
    """Workflow code did what only a step may do. The message says how to move it into a step."""


class TryAgain(OutlastError):
    """The same call may succeed later."""


class Busy(TryAgain):
    """Another transaction holds a lock. Nothing was written."""


class TimedOut(TryAgain, TimeoutError):
    """The deadline passed before the store did anything. Nothing was written."""


class Unavailable(TryAgain):
    """The database cannot be reached or takes no more work now. Nothing was written."""


class UnknownOutcome(TryAgain):
    """The response was lost: the write may have happened. Compare `Run.commit_id` with `Commit.id`
    before you retry."""


NAMED = 5
"""How many runs a message names."""
MAX_OPEN_NAMED = 100
"""How many runs an error lists."""


class Refused(OutlastError):
    """The store refused the write. Nothing was written; read again before you decide."""


class NotFound(Refused, LookupError):
    """There is no such run, task, activity, snapshot or fact. Never raised for a backend fault."""

    def __init__(self, kind: str, id: str) -> None:
        super().__init__(f"there is no {kind} {id!r}")
        self.kind = kind
        self.id = id


class RunExists(Refused):
    """The id is taken by another run. `differs` says in what that run differs from the one to start, if it was
    compared. Choose another id, or start with the same workflow and input to get that run."""

    def __init__(self, run_id: str, uid: str, differs: str = "") -> None:
        other = f" with another {differs}" if differs else ""
        super().__init__(
            f"run {run_id!r} exists already{other} (uid {uid}): choose another id, or pass the same workflow and "
            "input to get that run. on_conflict='replace' would end it and start a new one"
        )
        self.run_id = run_id
        self.uid = uid
        self.differs = differs


class Conflict(Refused):
    """Another writer was first. Load the history after `expected` and decide again."""

    def __init__(self, run_id: str, *, expected: int, actual: int, what: str = "sequence") -> None:
        super().__init__(
            f"run {run_id!r} is at {what} {actual}, not {expected}: "
            "another writer was first. Read it again and decide again"
        )
        self.run_id = run_id
        self.expected = expected
        self.actual = actual
        self.what = what


class DuplicateEvent(Refused):
    """An event with this id is recorded already, at `sequence`."""

    def __init__(self, run_id: str, event_id: str, sequence: int) -> None:
        super().__init__(
            f"event {event_id!r} of run {run_id!r} is recorded already at sequence {sequence}"
        )
        self.run_id = run_id
        self.event_id = event_id
        self.sequence = sequence


class Fenced(Refused):
    """A newer claim owns the run or the task: stop working on it at once."""

    def __init__(self, what: str, *, token: int | None, current: int | None = None) -> None:
        held = "no token" if token is None else f"token {token}"
        owned = "no longer owned by this claim" if not current else f"owned by claim {current}"
        super().__init__(
            f"{what} is {owned}; this call has {held}. "
            "Stop working on it: the owner of the newer claim continues"
        )
        self.token = token
        self.current = current


class RunClosed(Refused):
    """The run has ended; nothing can be added to it."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(f"run {run_id!r} is {status}: nothing can be added to it")
        self.run_id = run_id
        self.status = status


class AlreadyAnswered(Refused):
    """The question has an answer, and the first one counts. `by` gave it, at `at`."""

    def __init__(self, ask_id: str, by: str, at: datetime | None) -> None:
        who = by or "someone who gave no name"
        when = "" if at is None else f" at {at.isoformat(sep=' ', timespec='seconds')}"
        super().__init__(
            f"the question {ask_id!r} was answered by {who}{when}: the first answer counts"
        )
        self.ask_id = ask_id
        self.by = by
        self.at = at


class AskClosed(Refused):
    """The run no longer asks: it has ended, has stopped waiting, or is another life."""

    def __init__(self, ask_id: str, title: str = "") -> None:
        name = f"{ask_id!r} ({title})" if title else repr(ask_id)
        super().__init__(
            f"the question {name} is closed: its run no longer waits for an answer, and none was given"
        )
        self.ask_id = ask_id
        self.title = title


class CodeMissing(Refused):
    """The operation needs the code of the run, and no live worker has it."""

    def __init__(self, run_id: str, workflow: str, workers: int) -> None:
        live = (
            "1 worker is alive and does" if workers == 1 else f"{workers} workers are alive and do"
        )
        super().__init__(
            f"run {run_id!r} can be cancelled only with the code of its workflow {workflow!r}, which may "
            f"have something to undo: {live} not have it. Start a worker that has it and cancel again, or "
            "terminate the run: that ends it now, and undoes nothing"
        )
        self.run_id = run_id
        self.workflow = workflow


class RunsOpen(Refused):
    """The tree has runs that have not ended, so it is not deleted. `open` names up to 100."""

    def __init__(self, run_id: str, open: Sequence[str]) -> None:
        named = ", ".join(map(repr, open[:NAMED]))
        more = " and more" if len(open) > NAMED else ""
        super().__init__(
            f"run {run_id!r} is not deleted: {named}{more} of its tree have not ended. Cancel them and "
            "wait, or delete with force=True (`outlast rm --force`), which terminates them"
        )
        self.run_id = run_id
        self.open = tuple(open[:MAX_OPEN_NAMED])


class Moved(Refused):
    """The run was moved to another store and continues there."""

    def __init__(self, run_id: str, moved_to: str) -> None:
        super().__init__(
            f"run {run_id!r} was moved to {moved_to} and continues there. Use an app or "
            f"`outlast --store` with that store"
        )
        self.run_id = run_id
        self.moved_to = moved_to


class StoreFault(OutlastError):
    """The database or its data is faulty; an operator must act."""


class Undecodable(StoreFault):
    """Stored bytes are damaged, tampered with, or of an unknown format."""


class NotAStore(StoreFault):
    """The file or database is not an outlast store."""


class SchemaTooNew(StoreFault):
    """The store was written by a newer outlast. Upgrade this process."""


class UnsafeStorage(StoreFault):
    """Durability is not guaranteed here, for instance on a network filesystem."""


class ReadOnlyStore(StoreFault):
    """The database cannot be written: check the permissions of the file and its folder."""


class StoreFull(StoreFault):
    """No space is left. Nothing of the write remains; free some space and retry."""


class RunError(OutlastError):
    """A failure of a run, as its history records it."""


class RemoteTraceback(RunError):
    """Where an error was raised, and from which others, as text: the ``__cause__`` of an error that was recorded or
    comes from another process. `details` has the same as data."""

    def __init__(self, text: str, details: Sequence[object] = ()) -> None:
        super().__init__(f"\n{text}")
        self.details = tuple(details)


class StepFailed(RunError):
    """A step failed and is not retried. Raised where the workflow awaits the step. `error_type` is
    the name of the exception that the step raised. An exception in the step's `raises` is raised itself,
    and this is its ``__cause__``."""

    def __init__(self, step: str, error: str, attempts: int, error_type: str = "") -> None:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        what = f"{error_type}: {error}" if error_type else error
        super().__init__(f"step {step!r} failed after {tries}: {what}")
        self.step = step
        self.error = error
        self.error_type = error_type
        self.attempts = attempts
        self.raised_as: BaseException | None = None
        """The exception in the step's `raises` that is raised instead of this one."""


class ScopeFailed(RunError):
    """The code in a scope raised. Recorded, so that a replay raises the same error."""

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
    """An update failed, or the run ended without a response."""

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


class RunParked(RunError):
    """The run does not advance until other code continues it. Raised where its result is awaited."""

    def __init__(self, run_id: str, reason: str) -> None:
        super().__init__(
            f"run {run_id!r} is parked: {reason}\n"
            f"A worker with corrected code continues it when it starts; to try again with the same code: "
            f"`outlast resume {run_id}`. `outlast why {run_id}` says more"
        )
        self.run_id = run_id
        self.reason = reason


class Mismatch(RunError):
    """History and code disagree. The run is parked until the code is corrected and it is resumed."""

    def __init__(self, run_id: str, *, recorded: str, asked: str, at: str = "") -> None:
        super().__init__(
            f"run {run_id!r} cannot be replayed with this code.\n"
            f"  history: {recorded}\n"
            f"  code:    {asked}\n"
            + (f"  at:      {at}\n" if at else "")
            + "Restore the code that recorded this history, or keep it for older runs with "
            "`if outlast.patched(…):`; then resume the run"
        )
        self.run_id = run_id
        self.recorded = recorded
        self.asked = asked
        self.at = at


class RunEnding(asyncio.CancelledError):
    """Raised by calls of outlast in a run that has failed or was cancelled, once its compensation has
    started, or if its code does not end in time. A `CancelledError`, so that code which catches
    `Exception` ends too: let it pass."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            f"run {run_id!r} has failed or was cancelled: its code cannot start anything more. Clean "
            "up in a `finally` block, and let CancelledError pass"
        )
        self.run_id = run_id


class ContinueAsNew(BaseException):
    """Ends this life of a run and starts the next with new input: `outlast.continue_as_new`. Not an
    `Exception`, so that a workflow's ``except Exception`` does not catch it."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("continue as new")
        self.args_ = args
        self.kwargs_ = kwargs


__all__ = [
    "AlreadyAnswered",
    "AskClosed",
    "AskUnnamed",
    "Busy",
    "ChildFailed",
    "Closed",
    "CodeMissing",
    "Conflict",
    "ContinueAsNew",
    "DuplicateEvent",
    "Fenced",
    "InvalidCommit",
    "InvalidId",
    "InvalidQuery",
    "InvalidValue",
    "MapFailed",
    "Mismatch",
    "MissingExtra",
    "Moved",
    "NotAStore",
    "NotFound",
    "NotSerializable",
    "OutlastError",
    "PayloadError",
    "PayloadTooDeep",
    "PayloadTooLarge",
    "QueueClosed",
    "ReadOnlyStore",
    "Refused",
    "RemoteTraceback",
    "RunCancelled",
    "RunClosed",
    "RunEnding",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunParked",
    "RunsOpen",
    "SchemaTooNew",
    "ScopeFailed",
    "SignalTimeout",
    "StepFailed",
    "StepTimeout",
    "StoreClosed",
    "StoreFault",
    "StoreFull",
    "TimedOut",
    "TryAgain",
    "Unavailable",
    "Undecodable",
    "UnknownOutcome",
    "UnsafeStorage",
    "Unsupported",
    "UpdateFailed",
    "UsageError",
    "WorkflowMisuse",
]

for _name in __all__:  # the module that tracebacks, pickles and histories show
    globals()[_name].__module__ = __name__
