"""Fix the call: nothing was written."""

from __future__ import annotations

from outlast.errors.root import OutlastError


class UsageError(OutlastError):
    """The call itself is wrong. Nothing was written; the message says how to mend it."""


class InvalidId(UsageError, ValueError):
    """An id that no store may hold: empty, too long, or with characters that are reserved."""


class InvalidValue(UsageError, ValueError):
    """An argument is out of range or malformed."""


class InvalidQuery(InvalidValue):
    """A question about runs cannot be understood, from `position` on."""

    def __init__(self, query: str, position: int, problem: str) -> None:
        super().__init__(f"{problem}\n  {query}\n  {' ' * position}^")
        self.query = query
        self.position = position
        self.problem = problem


class InvalidCommit(UsageError, ValueError):
    """A commit contradicts itself, or a batch holds two commits of one run."""


class PayloadError(UsageError, ValueError):
    """A value cannot be stored so that it comes back exactly."""


class NotSerializable(PayloadError):
    """The value has no exact JSON form. The message names the place and how to annotate it."""


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
    """The store is closed. Open it again, or do not close it before its users are done."""


class QueueClosed(Closed):
    """The queue is closed."""


class WorkflowMisuse(UsageError, RuntimeError):
    """Workflow code did what only a step may do. The message says how to put it into one."""
