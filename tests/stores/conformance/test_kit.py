"""The kit itself: complete, documented, and not fooled by a store that says one thing and does
another."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

import pytest

from outlast.errors import StoreClosed
from outlast.model import Page, Run, RunQuery
from outlast.ports import Capability
from outlast.testkit import conformance
from outlast.testkit.conformance import PARTS, StoreConformance
from outlast.testkit.conformance.contract import StoreContract, needs_of
from outlast.testkit.conformance.undeclared import CALLS, check_unsupported
from tests.stores.conformance.minimal_store import MinimalStore

Test = Callable[..., object]


def own_tests(part: type) -> dict[str, Test]:
    """The tests that a class defines itself."""
    return {name: test for name, test in vars(part).items() if name.startswith("test_")}


ALL = [(part, name, test) for part in PARTS for name, test in own_tests(part).items()]


@pytest.mark.proves("C-19")
def test_all_parts_together_are_the_whole_kit() -> None:
    """`StoreConformance` has every part, and no test hides another of the same name."""
    shipped = {getattr(conformance, name) for name in conformance.__all__} - {PARTS}
    assert shipped - set(PARTS) == {StoreConformance, StoreContract}
    twice = [name for name, count in Counter(name for _, name, _ in ALL).items() if count > 1]
    assert twice == []


@pytest.mark.proves("K-15")
def test_every_test_states_its_behaviour_and_what_it_proves() -> None:
    """Each has a docstring and names contracts."""
    for part, name, test in ALL:
        assert inspect.getdoc(test), f"{part.__name__}.{name} has no docstring"
        marks = {mark.name for mark in getattr(test, "pytestmark", [])}
        assert "proves" in marks, f"{part.__name__}.{name} proves nothing"


def test_the_kit_is_not_collected_by_its_import() -> None:
    """A test module may import the classes: pytest takes only what is named `Test…`."""
    assert not any(part.__name__.startswith("Test") for part in (*PARTS, StoreConformance))


@pytest.mark.proves("C-19")
def test_every_capability_has_calls_and_tests() -> None:
    """None can be declared, or left out, without being looked at."""
    assert set(CALLS) == set(Capability)
    used = frozenset[Capability]().union(*(needs_of(test) for _, _, test in ALL))
    # Whether an owner has died cannot be told through the port alone.
    assert used == set(Capability) - {Capability.OWNER_GONE}


class SilentStore(MinimalStore):
    """Has a search that it does not declare."""

    async def find(self, query: RunQuery, *, timeout: float | None = None) -> Page[Run]:
        return Page([])


class ForgetfulStore(MinimalStore):
    """Declares a search that it does not have."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset({Capability.FIND})


@pytest.mark.proves("C-19", "D-05")
async def test_what_is_not_declared_must_be_refused() -> None:
    """A store that does more than it says is found out, as is one that is closed."""
    await check_unsupported(MinimalStore(), Capability.FIND)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await check_unsupported(SilentStore(), Capability.FIND)
    closed = MinimalStore()
    await closed.close()
    with pytest.raises(StoreClosed):
        await check_unsupported(closed, Capability.FIND)


@pytest.mark.proves("C-19", "D-38")
async def test_what_is_declared_must_be_there() -> None:
    """A store that does less than it says is found out."""
    declared = StoreConformance().test_a_capability_is_there_or_is_refused
    await declared(MinimalStore(), Capability.FIND)
    with pytest.raises(pytest.fail.Exception, match="is declared, but"):
        await declared(ForgetfulStore(), Capability.FIND)
