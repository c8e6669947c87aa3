"""The mutants fit the code, and the hunt tells the dead from the living."""

from __future__ import annotations

from collections import Counter

import pytest

from outlast.testkit.mutation import Mutant, Verdict, applies, run
from tests.mutants import PACKAGE, ROOT, every

KIT = "tests/stores/conformance/test_queue_memory.py"
ONE_TEST = (f"{KIT}::TestMemoryQueue::test_an_empty_queue_hands_out_nothing",)
EMPTY = "        return taken\n\n    async def ack("


def test_every_mutant_applies() -> None:
    """Each of them finds its text exactly once, so that none is passed over when code moves on."""
    assert applies(every(), PACKAGE) == []


def test_mutants_have_names_of_their_own() -> None:
    """A table of results can be read."""
    counts = Counter(mutant.name for mutant in every())
    assert [name for name, count in counts.items() if count > 1] == []
    assert len(counts) >= 20


def test_there_are_mutants_of_the_engine() -> None:
    """At least forty, for every promise that an engine makes beyond its store's."""
    of_the_engine = [mutant for mutant in every() if mutant.file.startswith("engine/")]
    assert len(of_the_engine) >= 40


SAMPLE = (
    "a body begins before its intent is durable",
    "a wake-up is dropped",
    "the last signal is taken first",
    "a cancel cuts the undoing short",
    "eviction is cancellation",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_mutant_is_killed(name: str) -> None:
    """A few that cost little; `./dev mutants` tries all of them."""
    [mutant] = [one for one in every() if one.name == name]
    report = run(mutant, ROOT)
    assert report.verdict is Verdict.KILLED, str(report)


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        ("        raise NotFound('task', '')\n\n    async def ack(", Verdict.KILLED),
        ("        return taken  # as before\n\n    async def ack(", Verdict.SURVIVED),
        ("        return (\n\n    async def ack(", Verdict.INVALID),
    ],
)
def test_the_hunt_tells_the_dead_from_the_living(new: str, verdict: Verdict) -> None:
    """A change that breaks a test is killed by it, one that changes nothing survives, and one that
    is no Python at all is neither."""
    mutant = Mutant("example", "stores/memory/queue.py", EMPTY, new, ONE_TEST)
    report = run(mutant, ROOT)
    assert report.verdict is verdict, report.by


def test_a_mutant_that_does_not_apply_says_so() -> None:
    """Neither killed nor survived: it has to be brought up to date."""
    report = run(Mutant("example", "stores/memory/queue.py", "no such text", "x"), ROOT)
    assert report.verdict is Verdict.INVALID
    assert "mutant does not apply" in report.by
