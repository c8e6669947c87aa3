"""Stores against the memory store, in sequences of calls that Hypothesis invents."""

from __future__ import annotations

from unittest import TestCase

import pytest
from hypothesis import Phase

from outlast.stores.memory import MemoryStore
from outlast.testkit.stateful import store_machine
from tests.unit.testkit.stateful.sick import SICK
from tests.unit.testkit.stateful.stores import ON_TRIAL

EXAMPLES = 150


def test_memory_against_itself() -> None:
    """The comparison itself sees no difference where there is none."""
    check(store_machine(lambda clock: MemoryStore(clock=clock), max_examples=20))


@pytest.mark.timeout(600)
@pytest.mark.proves("I1", "I5", "I6", "I11", "I12", "I13", "I16", "I18", "I25", "K-08", "C-28")
@pytest.mark.parametrize("name", ON_TRIAL)
def test_a_store_against_memory(name: str) -> None:
    """Whatever is asked of both, the store answers and holds what the memory store does."""
    check(store_machine(ON_TRIAL[name], max_examples=EXAMPLES))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("sick", SICK)
def test_a_sick_store_is_found_out(sick: type[MemoryStore]) -> None:
    """The machine reaches the places where stores go wrong: otherwise its silence says little."""
    machine = store_machine(
        lambda clock: sick(clock=clock),
        max_examples=1000,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError, match=r"differ|greater"):
        check(machine)


def check(case: type[TestCase]) -> None:
    """Run a test case of the machine."""
    case("runTest").debug()
