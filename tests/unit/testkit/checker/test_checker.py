"""The checker sees what is wrong and only that; otherwise its green would be worthless."""

from __future__ import annotations

import pytest

from outlast.testkit.checker import INVARIANTS, check
from tests.unit.testkit.checker.histories import BAD, GOOD


@pytest.mark.parametrize("story", BAD)
def test_a_broken_promise_is_seen(story: str) -> None:
    """A history that breaks an invariant is reported under its number."""
    invariant = story.partition(":")[0]
    assert invariant in [violation.invariant for violation in check(BAD[story])]


@pytest.mark.parametrize("story", GOOD)
def test_a_promise_that_is_kept_is_not_reported(story: str) -> None:
    """A history that keeps all of them gives no violation at all."""
    assert [str(violation) for violation in check(GOOD[story])] == []


def test_each_invariant_has_both_kinds() -> None:
    """None is claimed to be checked that no bad history has put to the test."""
    for stories in (GOOD, BAD):
        assert {story.partition(":")[0] for story in stories} == set(INVARIANTS)
