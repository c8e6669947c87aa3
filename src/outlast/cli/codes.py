"""Exit codes: what a script may rely on."""

from __future__ import annotations

from enum import IntEnum

from outlast.errors import (
    MissingExtra,
    NotFound,
    OutlastError,
    Refused,
    RunError,
    StoreFault,
    TryAgain,
    UsageError,
)


class Exit(IntEnum):
    """How a command ended. The numbers never change their meaning."""

    OK = 0
    FOUND = 1  # doctor or db check found something; a question was answered with no
    USAGE = 2  # the command line is wrong: nothing was done
    NOT_FOUND = 3  # no such run, or several whose ids begin like that
    REFUSED = 4  # the store looked and said no: it has ended, it exists, somebody was faster
    UNREACHABLE = 5  # the store cannot be reached or is busy: try again
    DAMAGED = 6  # the store or a file is not as it should be
    RUN_FAILED = 7  # the run that was waited for failed or was cancelled
    TIMED_OUT = 8  # what was waited for did not come in time
    INTERRUPTED = 130  # Ctrl-C
    PIPE_CLOSED = 141  # whoever read the output has gone


def code_of(error: BaseException) -> Exit:
    """The exit code for an error."""
    match error:
        case NotFound():
            return Exit.NOT_FOUND
        case MissingExtra() | UsageError() | FileNotFoundError() | PermissionError():
            return Exit.USAGE
        case Refused():
            return Exit.REFUSED
        case TryAgain() | ConnectionError():
            return Exit.UNREACHABLE
        case TimeoutError():
            return Exit.TIMED_OUT
        case RunError():
            return Exit.RUN_FAILED
        case StoreFault() | OutlastError() | OSError():
            return Exit.DAMAGED
    return Exit.FOUND
