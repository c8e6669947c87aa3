"""Try again: the same call may succeed later."""

from __future__ import annotations

from outlast.errors.root import OutlastError


class TryAgain(OutlastError):
    """The same call may succeed later."""


class Busy(TryAgain):
    """Another writer holds a lock. Nothing was written."""


class TimedOut(TryAgain, TimeoutError):
    """The deadline passed before the store did anything. Nothing was written."""


class Unavailable(TryAgain):
    """The database cannot be reached or takes no more work now. Nothing was written."""


class UnknownOutcome(TryAgain):
    """The answer was lost: the write may have happened. Read `Commit.id` back before you retry."""
