"""Errors travel between processes."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - what others may do with it
from datetime import UTC, datetime

import pytest

from outlast import errors

ONE_OF_EACH_FORM = [
    errors.InvalidValue("no"),
    errors.InvalidQuery("status = x", 3, "what?"),
    errors.NotFound("run", "a"),
    errors.RunExists("a", "uid"),
    errors.Conflict("a", expected=1, actual=2),
    errors.DuplicateEvent("a", "event", 3),
    errors.Fenced("run 'a'", token=1, current=2),
    errors.RunClosed("a", "failed"),
    errors.RunsOpen("a", ("a", "a~1")),
    errors.Moved("a", "redis://there"),
    errors.CodeMissing("r", "order", 2),
    errors.AskUnnamed("a", ["a/0", "a/1"]),
    errors.AlreadyAnswered("a/0", "ann", datetime(2030, 1, 1, tzinfo=UTC)),
    errors.AskClosed("a/0", "Approve it"),
    errors.TimedOut("late"),
    errors.MissingExtra("pip install it"),
    errors.StepFailed("charge", "no money", 3, "ValueError"),
    errors.RunParked("a", "no code fits"),
    errors.RemoteTraceback("  at shop.py:5 in order\nKeyError: 1"),
    errors.ScopeFailed("scope:a", "no", "ValueError"),
    errors.ChildFailed("b", "no", "child:b"),
    errors.MapFailed("map:a", 7, "no"),
    errors.SignalTimeout("paid"),
    errors.UpdateFailed("a", "add", "no"),
    errors.RunFailed("a", "failed", "no"),
    errors.RunCancelled("a", "cancelled", "no"),
    errors.Mismatch("a", recorded="step x", asked="step y", at="shop.py:3"),
    errors.StoreFull("no space"),
]


@pytest.mark.parametrize("error", ONE_OF_EACH_FORM, ids=lambda error: type(error).__name__)
def test_an_error_can_be_pickled(error: errors.OutlastError) -> None:
    """One that could not be would break the pool of processes that it is raised in."""
    for back in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert vars(back) == vars(error)


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_is_known_by_its_public_place(name: str) -> None:
    """Tracebacks, pickles and recorded names say `outlast.errors.X`, whichever file it is in."""
    kind = getattr(errors, name)
    assert (kind.__module__, kind.__qualname__) == ("outlast.errors", name)


def test_every_form_is_here() -> None:
    """A class with a constructor of its own has to be among those above."""
    own = {
        kind.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type)
        and issubclass(kind, errors.OutlastError)
        and "__init__" in vars(kind)
    }
    assert own <= {type(error).__name__ for error in ONE_OF_EACH_FORM}
