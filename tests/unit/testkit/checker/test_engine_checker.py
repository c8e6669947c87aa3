"""The checker of the engine sees what is wrong and only that."""

from __future__ import annotations

import pytest

from outlast.testkit.checker.engine import ENGINE_INVARIANTS, check_engine
from tests.unit.testkit.checker.engine_bad import BAD
from tests.unit.testkit.checker.engine_good import GOOD


@pytest.mark.parametrize("story", BAD)
def test_a_broken_promise_is_seen(story: str) -> None:
    """A history that breaks an invariant is reported under its number and no other, in words that
    say what is wrong."""
    evidence, text = BAD[story]
    found = check_engine(evidence)
    assert {violation.invariant for violation in found} == {story.partition(":")[0]}
    assert any(text in str(violation) for violation in found), [str(one) for one in found]


@pytest.mark.parametrize("story", GOOD)
def test_a_promise_that_is_kept_is_not_reported(story: str) -> None:
    """A history that keeps all of them gives no violation at all."""
    assert [str(violation) for violation in check_engine(GOOD[story])] == []


def test_each_invariant_has_both_kinds() -> None:
    """None is claimed to be checked that no bad history has put to the test."""
    for stories in (GOOD, BAD):
        assert {story.partition(":")[0] for story in stories} == set(ENGINE_INVARIANTS)
