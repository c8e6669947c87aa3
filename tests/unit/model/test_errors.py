"""Errors: a tree split by what the caller should do, with the facts it needs to do it."""

from __future__ import annotations

import pytest

from outlast import errors
from outlast.errors import (
    Busy,
    Conflict,
    DuplicateEvent,
    Fenced,
    NotFound,
    OutlastError,
    Refused,
    RunClosed,
    RunExists,
    StoreFault,
    TimedOut,
    TryAgain,
    Undecodable,
    UnknownOutcome,
    Unsupported,
    UsageError,
)

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, OutlastError)
]


@pytest.mark.proves("K-15", "S-09")
@pytest.mark.parametrize("error", ALL)
def test_every_error_belongs_to_the_tree_and_is_drawn_there(error: type[OutlastError]) -> None:
    """One `except OutlastError` catches all, and the module's head shows each."""
    assert error.__doc__
    assert errors.__doc__
    assert error.__name__ in errors.__doc__


@pytest.mark.proves("S-09", "R-21", "C-06")
def test_not_found_is_no_fault() -> None:
    """Not there, cannot be read, and broken are three families."""
    assert issubclass(NotFound, Refused)
    assert issubclass(Undecodable, StoreFault)
    assert not issubclass(NotFound, StoreFault)
    assert not issubclass(StoreFault, Refused)


@pytest.mark.proves("D-05", "C-19")
def test_unsupported_is_what_python_calls_not_implemented() -> None:
    """Both names catch it."""
    assert issubclass(Unsupported, UsageError)
    assert issubclass(Unsupported, NotImplementedError)


@pytest.mark.proves("C-20", "M-10")
def test_unknown_is_not_failed() -> None:
    """Who may try again as it is, and who has to look first, are told apart."""
    assert issubclass(TimedOut, TryAgain)
    assert issubclass(TimedOut, TimeoutError)
    assert issubclass(Busy, TryAgain)
    assert issubclass(UnknownOutcome, TryAgain)
    assert not issubclass(UnknownOutcome, TimedOut)


@pytest.mark.proves("K-08", "K-09", "K-15")
def test_refusals_carry_what_the_caller_needs() -> None:
    """Facts as attributes, and a message with all of them and the next step."""
    conflict = Conflict("r", expected=3, actual=5)
    assert (conflict.run_id, conflict.expected, conflict.actual) == ("r", 3, 5)
    assert all(word in str(conflict) for word in ("'r'", "3", "5", "again"))
    duplicate = DuplicateEvent("r", "e", 2)
    assert (duplicate.run_id, duplicate.event_id, duplicate.sequence) == ("r", "e", 2)
    fenced = Fenced("run 'r'", token=None, current=5)
    assert (fenced.token, fenced.current) == (None, 5)
    assert "no token" in str(fenced)
    missing = NotFound("run", "r")
    assert (missing.kind, missing.id) == ("run", "r")
    taken = RunExists("r", "uid")
    assert (taken.run_id, taken.uid) == ("r", "uid")
    closed = RunClosed("r", "failed")
    assert (closed.run_id, closed.status) == ("r", "failed")
