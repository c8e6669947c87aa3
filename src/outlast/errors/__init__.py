"""Every error that outlast raises on purpose, split by what the caller should do next.

::

    OutlastError
    ├── UsageError                 fix the call; nothing was written
    │   ├── InvalidId                 an id that no store may hold
    │   ├── InvalidValue              an argument out of range, a bad cursor, a bad URL
    │   │   └── InvalidQuery             a question about runs that cannot be understood
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
    │   ├── NotFound                  there is no such thing (never a backend fault)
    │   ├── RunExists                 the id is taken by another run
    │   ├── Conflict                  somebody wrote first: expected and actual
    │   ├── DuplicateEvent            that event id is recorded already: its sequence
    │   ├── Fenced                    a newer claim owns the run or the task
    │   ├── RunClosed                 the run has ended
    │   ├── CodeMissing               no live worker has the code of the run
    │   ├── RunsOpen                  the tree has runs that have not ended: not deleted
    │   └── Moved                     the run goes on in another store: ask there
    ├── TryAgain                   the same call may succeed later
    │   ├── Busy                      a lock is held; nothing was written
    │   ├── TimedOut                  the deadline passed; nothing was written
    │   ├── Unavailable               the database cannot be reached; nothing was written
    │   └── UnknownOutcome            it may have happened: settle by `Commit.id`, then retry
    ├── RunError                   what became of a run or a step, told to whoever awaits it
    │   ├── StepFailed                a step failed for good
    │   ├── ScopeFailed               a scope ended in an error
    │   ├── ChildFailed               a child ended in an error
    │   ├── MapFailed                 too many items of a map failed
    │   ├── SignalTimeout             the signal did not come in time
    │   ├── UpdateFailed              the run answered an update with an error
    │   ├── StepTimeout               an attempt took longer than its step allows
    │   ├── RunFailed                 the run ended in an error
    │   │   └── RunCancelled             the run was cancelled
    │   └── Mismatch                  history and code disagree: the run is parked
    └── StoreFault                 retrying does not help; an operator has to look
        ├── Undecodable               stored bytes that are not what they should be
        ├── NotAStore                 the file or database is not an outlast store
        ├── SchemaTooNew              written by a newer outlast
        ├── UnsafeStorage             a place where durability cannot be promised
        ├── ReadOnlyStore             the database cannot be written
        └── StoreFull                 no space left

Foreign errors (of a driver, of the operating system) are mapped to this tree in one place at
each adapter's edge and kept as ``__cause__``.

Each family has a file of its own; all are imported from here.
"""

from outlast.errors.fault import (
    NotAStore,
    ReadOnlyStore,
    SchemaTooNew,
    StoreFault,
    StoreFull,
    Undecodable,
    UnsafeStorage,
)
from outlast.errors.refused import (
    CodeMissing,
    Conflict,
    DuplicateEvent,
    Fenced,
    Moved,
    NotFound,
    Refused,
    RunClosed,
    RunExists,
    RunsOpen,
)
from outlast.errors.root import OutlastError
from outlast.errors.run import (
    ChildFailed,
    ContinueAsNew,
    MapFailed,
    Mismatch,
    RunCancelled,
    RunEnding,
    RunError,
    RunFailed,
    ScopeFailed,
    SignalTimeout,
    StepFailed,
    StepTimeout,
    UpdateFailed,
)
from outlast.errors.try_again import Busy, TimedOut, TryAgain, Unavailable, UnknownOutcome
from outlast.errors.usage import (
    Closed,
    InvalidCommit,
    InvalidId,
    InvalidQuery,
    InvalidValue,
    MissingExtra,
    NotSerializable,
    PayloadError,
    PayloadTooDeep,
    PayloadTooLarge,
    QueueClosed,
    StoreClosed,
    Unsupported,
    UsageError,
    WorkflowMisuse,
)

__all__ = [
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
    "RunCancelled",
    "RunClosed",
    "RunEnding",
    "RunError",
    "RunExists",
    "RunFailed",
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

for _name in __all__:  # their place in tracebacks, in pickles, and in what is recorded of them
    globals()[_name].__module__ = __name__
